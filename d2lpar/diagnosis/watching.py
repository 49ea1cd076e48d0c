"""Inside each rank of a watched script: record what it does in a file, which the watching process reads.

The ranks exchange nothing for this, so the records can be read even after a crash or a hang. A script that runs
unmodified has no place where hooks could be added, so PyTorch's own functions are replaced before it imports them. A
tensor is recorded as a *sketch*, 32 randomly weighted sums of its elements. A sketch is small, and the sketch of a
sum is the sum of the sketches.
"""

from __future__ import annotations

import atexit
import faulthandler
import inspect
import json
import multiprocessing
import os
import pickle
import re
import runpy
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import lru_cache, partial
from importlib import import_module
from multiprocessing import util
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlparse

import numpy as np
import torch
import torch.distributed as dist
import torch.utils.data._utils.fetch as fetching
import torch.utils.data.dataloader as loading
from torch import Tensor, nn
from torch.distributed.algorithms import Join
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from d2lpar.diagnosis.cuda import cuda_on_the_cpu
from d2lpar.diagnosis.examples import (
    is_in_next,
    keys_of_rows,
    length,
    other_states,
    probe,
    random_state,
    sampler_of,
    takes_a_part,
    takes_the_end,
    with_rows,
)
from d2lpar.diagnosis.kept_files import KEPT_BYTES, KeptFiles
from d2lpar.diagnosis.loss_weights import LossTerm, watch_loss
from d2lpar.diagnosis.parts import can_be_put_together, cut_like, fsdp, local, ranks_of_parts
from d2lpar.diagnosis.recording import (
    COLLECTIVES,
    HERE,
    TORCH,
    Recorder,
    Step,
    Values,
    of_the_script,
    script_frames,
    script_line,
)
from d2lpar.diagnosis.some_ranks import under_rank_test

SETTINGS = "D2LPAR_WATCH"  # the environment variable that passes the settings to a script's child processes
ROOT = str(Path(__file__).resolve().parents[2])
NUMBERS = 32  # in a sketch
OF_WORKER = ".worker"  # in the run's folder: which generators a loader's worker drew from first, and their states
COPIES, COPIED = "checkpoint", ".copied"  # in the run's folder: copies of a script's files at its first checkpoint
COLUMNS = 512  # of a large tensor, whose rows are sketched first
LONGEST_EPOCH = 12  # batches; of a longer epoch only the first SHORT_EPOCH are used
SHORT_EPOCH = 6
STEPS_OF_SHORT_EPOCH = 3
MOST_STEPS = 24  # if no loader shows where an epoch ends
MOST_STEPS_OF_PASSES = 96  # where passes through loaders are not ended early
MOST_PASSES = 6  # through loaders, if the script makes a new one for each epoch
MOST_INDICES = 2_000_000
LAUNCHER = re.compile(r"torchrun|torch\.distributed\.(run|launch)|accelerate launch|deepspeed")
STACK_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else getattr(signal, "SIGUSR1", 0)  # of few scripts
COLLECTIVE = {f"dist.{name}" for name in COLLECTIVES}
DISTRIBUTED = os.path.join(TORCH, "distributed", "")
OF_A_BACKWARD_PASS = ("_passes", "_thrown_away", "_stale", "examples", "micro_batches", "forwards", "_exchanging",
                      "_called", "_clipped", "_lines", "_terms", "_losses", "_gathers", "_buffers_before", "_unscaled",
                      "_at_clip")
EARLIER = -1  # in place of the number of a backward pass
WITH_DROPOUT = nn.modules.dropout._DropoutNd


class Settings(NamedTuple):
    """What the watching process wants."""

    folder: str  # for the records
    k: int
    port: int  # for the process group, whatever the script wants; 0 to leave it alone
    pretend: bool  # that there are GPUs
    to_the_end: bool  # do not end the run when enough was seen
    spawns: bool  # the script starts its ranks itself
    shortens: bool = True  # long passes through loaders end early
    epochs: int = 2  # to watch


class Networks:
    """All networks of a script as one: those that were wrapped, or called in training, under stable names."""

    training = True

    def __init__(self) -> None:
        self._roots: list[tuple[str, nn.Module]] = []
        self._known: set[int] = set()  # of modules
        self.in_parts: dict[int, Any] = {}  # by the whole parameter that `fully_shard` makes, what knows its parts

    def add(self, module: nn.Module) -> None:
        """Include a module, unless all of its parameters are known."""
        if id(module) in self._known:
            return
        self._known.add(id(module))
        module = unwrapped(module)
        known = {id(p) for p in self.parameters()}
        if all(id(p) in known for p in self._parameters_of(module)):
            return
        name = type(module).__name__
        count = sum(type(root).__name__ == name for _, root in self._roots)
        self._roots.append((f"{name}{count + 1 if count else ''}." if self._roots else "", module))

    def names(self) -> dict[str, list[str]]:
        """The names of each network's parameters, by the network's own name; a shared one belongs to the first."""
        found: dict[str, list[str]] = {}
        for prefix, root in self._roots:
            own = {id(p) for p in self._parameters_of(root)}
            name = prefix.rstrip(".") or type(root).__name__
            taken = {each for names in found.values() for each in names}
            found[name] = [each for each, p in self.named_parameters() if id(p) in own and each not in taken]
        return found

    def modules(self) -> Iterator[nn.Module]:
        """The modules of all networks."""
        for _, root in self._roots:
            yield from root.modules()

    def never_trained(self, optimizers: Iterable[Optimizer], with_gradients: set[str]) -> frozenset[str]:
        """The parameters of networks of which none is in an optimizer or has a gradient, such as in a trial run."""
        trained = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        trained |= {id(p) for name, p in self.named_parameters() if name in with_gradients}
        idle = {id(p) for _, root in self._roots if not any(id(p) in trained for p in self._parameters_of(root))
                for p in self._parameters_of(root)}
        return frozenset(name for name, p in self.named_parameters() if id(p) in idle - trained)

    def _parameters_of(self, root: nn.Module) -> Iterator[Tensor]:
        return (self.in_parts[id(p)].sharded_param if id(p) in self.in_parts else p for p in root.parameters())

    def _named(self, what: str) -> Iterator[tuple[str, Tensor]]:
        seen = set()
        for prefix, root in self._roots:
            for name, x in getattr(root, what)():
                if id(x) in self.in_parts:  # it is whole at the moment
                    x = self.in_parts[id(x)].sharded_param
                if id(x) not in seen:
                    seen.add(id(x))
                    yield prefix + name, x

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters of all networks, each once, with their names."""
        return self._named("named_parameters")

    def parameters(self) -> Iterator[Tensor]:
        """The parameters of all networks, each once."""
        return (x for _, x in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The buffers of all networks, each once, with their names."""
        return self._named("named_buffers")


class Log:
    """The file with a rank's records; records made before the rank is known are held back."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self._pid = settings, 0
        self._waiting: list[tuple[str, dict]] = []
        self._file: Any = None
        self.line_file: Path | None = None

    def note(self, kind: str, **data: Any) -> None:
        """Add a record."""
        if get_worker_info() is not None or self._pid not in (0, os.getpid()):  # a loader's worker, or a fork
            return
        self._waiting.append((kind, data))
        rank = self.rank
        if rank is None:
            return
        if self._file is None:
            self._pid = os.getpid()
            self._file = open(Path(self.settings.folder, f"{rank}.records"), "ab")  # noqa: SIM115
            self.line_file = Path(self.settings.folder, f"{rank}.line")
            if hasattr(faulthandler, "register"):
                self._stack_file = open(Path(self.settings.folder, f"{rank}.stack"), "w")  # noqa: SIM115
                faulthandler.register(STACK_SIGNAL, self._stack_file, all_threads=False)
        for record in self._waiting:
            pickle.dump(record, self._file)
        self._file.flush()
        self._waiting.clear()

    @property
    def rank(self) -> int | None:
        """This process's, once it is known."""
        if dist.is_initialized():
            return dist.get_rank()
        return None if self.settings.spawns else int(os.environ["RANK"])


class Watcher(Recorder):
    """Notes what a rank does, from the first import of the script to its end, or until enough was seen."""

    def __init__(self, settings: Settings) -> None:
        self._before: dict[str, Any] = {}  # OF_A_BACKWARD_PASS, as the last steps found it
        self._passes, self._recalled = {}, False
        self._stepped: Any = None  # the optimizer that made the last step
        self._parts: dict[int, Tensor] = {}  # parameters of which this rank has a part, and that can be put together
        self._with_hooks: set[int] = set()  # of these
        self._constants: set[str] = set()  # of these, whose part on this rank has one value only before the first step
        self.networks = Networks()
        super().__init__(self.networks)
        self.settings, self.log = settings, Log(settings)
        self.loaders: dict[tuple[int, str], _Loader] = {}  # by the data set and the line of the script
        self.optimizers: list[Optimizer] = []
        self.num_steps = self.num_backwards = 0
        self.num_passes_with_steps = 0
        self.current: _Pass | None = None  # the one that drew a batch last
        self.resumed = ""  # the line on which an optimizer's state was loaded
        self._depth = 0
        self._before_step: dict[str, Any] = {}  # of the last forward pass before the first step
        self._phase = ""  # "training" or "evaluation", of the forward passes
        self._terms: list[LossTerm] = []
        self._saved, self._has_copied, self._has_loaded, self._has_state = "", False, False, False
        self._scaler_scales = self._unscaled = self._has_ended = self._is_in_backward = False
        self._stack = ExitStack()
        self._num_groups = 0
        self.files = KeptFiles(settings.folder)
        self.asked: set[str] = set()  # of GPUs that are not there
        self._on_some: set[str] = set()  # collectives under an `if` on the rank, each with its line
        self._applies = False

    def keep(self, x: Tensor) -> Tensor:
        """A sketch of it."""
        return sketch(x)

    def start(self) -> None:
        """Replace PyTorch's functions, before the script imports them."""
        if not torch.cuda.is_available():
            self.asked = self._stack.enter_context(cuda_on_the_cpu(None, self.settings.k, self.settings.pretend))
        for owner, name, change in self._changes():
            self.replace(owner, name, change)
        super().start()
        if not self.settings.to_the_end:
            self.files.start()
        atexit.register(self.end, "")

    def stop(self) -> None:
        """Remove all hooks, but keep pretending that there are GPUs: the script still needs them."""
        super().stop()
        atexit.unregister(self.end)

    def _changes(self) -> list[tuple[Any, str, Callable[[Callable], Callable]]]:
        functional = torch.nn.utils
        changes: list[tuple[Any, str, Callable]] = [
            (nn.Module, "__call__", self._calling), (nn.Module, "_apply", self._applying),
            (nn.Module, "cpu", self._moving_to_the_cpu), (Optimizer, "add_param_group", self._adding),
            (torch.autograd, "backward", self._going_backward),
            (loading._BaseDataLoaderIter, "__init__", self._beginning),
            (loading._BaseDataLoaderIter, "_reset", self._again),
            (loading._BaseDataLoaderIter, "__next__", self._drawing),
            (loading._BaseDataLoaderIter, "_next_index", _taking_indices), (torch, "save", self._saving),
            (torch, "load", self._loading), (fetching._MapDatasetFetcher, "fetch", self._fetching),
            (torch.jit.RecursiveScriptModule, "save", self._saving_script),
            (Optimizer, "load_state_dict", self._resuming), (torch.amp.GradScaler, "unscale_", self._unscaling),
            (torch, "compile", _compiling),
            (nn.Module, "compile", lambda _: lambda module, *args, **kwargs: None),
            (functional, "clip_grad_value_", self.clipping), (functional.clip_grad, "clip_grad_value_", self.clipping),
            (nn.DataParallel, "__init__", self._making_data_parallel), (Tensor, "register_hook", self._hooking),
            (torch.optim.lr_scheduler.ReduceLROnPlateau, "step", self._scheduling),
            (dist, "init_process_group", self._joining), (dist.distributed_c10d, "init_process_group", self._joining),
            (dist, "destroy_process_group", self._leaving), (Join, "__enter__", self._entering_join),
            (subprocess.Popen, "__init__", self._launching),
            (multiprocessing.process.BaseProcess, "run", self._failing),
            (import_module("torch.multiprocessing.spawn"), "_wrap",  # torch.multiprocessing.spawn is a function too
             lambda wrap: lambda function, *args: wrap(self._failing(function), *args)),
            (util, "spawnv_passfds", self._starting_python)]
        if fsdp is not None:
            changes += [(fsdp.FSDPParam, "__init__", self._cutting),
                        (fsdp.FSDPParam, "to_unsharded", self._making_whole)]
        if not self.settings.spawns and self.settings.port:
            changes.append((multiprocessing.process.BaseProcess, "start", self._spawning))
        return changes

    # the process group

    def _joining(self, init: Callable) -> Callable:
        def joining(*args: Any, **kwargs: Any) -> Any:
            if dist.is_initialized():
                return init(*args, **kwargs)
            given = dict(zip(inspect.signature(init).parameters, args)) | kwargs
            url = given.get("init_method") or "env://"
            in_url = dict(parse_qsl(urlparse(url).query)) if url.startswith("tcp://") else {}
            world_size, rank = (given[name] if given.get(name, -1) >= 0 else int(
                in_url.get(name, os.environ.get(name.upper(), -1))) for name in ("world_size", "rank"))
            if self.settings.port:  # the script's own port may be in use
                os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(self.settings.port)
            if self.settings.port and given.get("store") is None and url.startswith(("env://", "tcp://")) and (
                    world_size > 0 <= rank):  # PyTorch's store would listen on all interfaces
                store = dist.FileStore(f"{self.settings.folder}/{self._num_groups}-{world_size}.store", world_size)
                given |= {"init_method": None, "store": store, "world_size": world_size, "rank": rank}
                self._num_groups += 1
            joining = Path(self.settings.folder, f"{os.getpid()}.joining")
            joining.write_text(json.dumps({"rank": rank, "line": script_line(), "world_size": world_size}), "utf8")
            try:
                result = init(**given)
            finally:
                joining.unlink(missing_ok=True)
            self.log.note("group", world_size=dist.get_world_size(), pid=os.getpid())
            self.crumbs = self.log.line_file
            util.Finalize(None, self.end, ("",), exitpriority=100)  # they skip atexit
            return result

        return joining

    def _leaving(self, destroy: Callable) -> Callable:
        def leaving(*args: Any, **kwargs: Any) -> Any:
            if (args[0] if args else kwargs.get("group")) is None:
                self.end("")
            return destroy(*args, **kwargs)

        return leaving

    def _launching(self, init: Callable) -> Callable:
        def launching(process: Any, args: Any, *others: Any, **kwargs: Any) -> None:
            command = " ".join(map(str, [args] if isinstance(args, (str, bytes, os.PathLike)) else args))
            if not dist.is_initialized() and LAUNCHER.search(command):
                self.log.note("launches", command=command)
                os._exit(0)
            init(process, args, *others, **kwargs)

        return launching

    def _entering_join(self, enter: Callable) -> Callable:
        def entering(*args: Any) -> Any:
            self.log.note("join")
            return enter(*args)

        return entering

    def _spawning(self, start: Callable) -> Callable:
        def starting(process: Any) -> Any:
            works_for_others = getattr(process._target, "__module__", "").startswith("concurrent.futures")
            if not process.daemon and not dist.is_initialized() and "Manager" not in process.name and (
                    not works_for_others):
                self.log.note("spawns")
                os._exit(0)  # the script starts its ranks itself, so it must be started once
            return start(process)

        return starting

    def _starting_python(self, spawn: Callable) -> Callable:
        def starting(path: Any, args: Any, fds: Any) -> Any:
            # the last one, because RankGroup has such words start with a program of its own
            code = max((i + 1 for i, word in enumerate(args) if word in ("-c", b"-c")), default=None)
            if self.settings.spawns and code is not None and "resource_tracker" not in str(args[code]):
                first = f"import sys; sys.path.insert(0, {ROOT!r}); from {__name__} import install; install(); "
                words = list(args)
                words[code] = first.encode() + words[code] if isinstance(words[code], bytes) else first + words[code]
                return spawn(path, words, fds)
            return spawn(path, args, fds)

        return starting

    def note_line(self, what: str) -> None:
        """Also note a collective that only some ranks may reach, once for each line, and one in a backward pass."""
        super().note_line(what)
        self._gathers |= self._is_in_backward and what in COLLECTIVE
        frames = [(frame.f_code.co_filename, frame.f_lineno) for frame in script_frames()] if what in COLLECTIVE else []
        under = under_rank_test(frames)
        if under and (place := f"line {frames[0][1]} is{under[1:]}") not in self._on_some:
            self._on_some.add(place)
            self.log.note("on some ranks", place=place)

    # networks

    def _applying(self, apply: Callable) -> Callable:
        def applying(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            before = [] if self._applies or not self.wrapped_names else [
                (p, (p.dtype, p.device)) for p in module.parameters() if id(p) in self.wrapped_names]
            if not before:
                return apply(module, *args, **kwargs)
            self._applies = True  # and its submodules are a part of it
            try:
                return apply(module, *args, **kwargs)
            finally:
                self._applies = False
                if any((p.dtype, p.device) != kind for p, kind in before):
                    self.log.note("moved", line=script_line(), steps=self.num_steps, pretended=False)

        return applying

    def _moving_to_the_cpu(self, move: Callable) -> Callable:
        def moving(module: nn.Module) -> nn.Module:
            if self.asked and any(id(p) in self.wrapped_names for p in module.parameters()):  # on a GPU it would move
                self.log.note("moved", line=script_line(), steps=self.num_steps, pretended=True)
            return move(module)

        return moving

    def _calling(self, call: Callable) -> Callable:
        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._depth or next(module.parameters(), None) is None:
                return call(module, *args, **kwargs)
            is_training = unwrapped(module).training and torch.is_grad_enabled() and any(  # Lightning's wrapper is not
                p.requires_grad for p in module.parameters())
            if is_training:
                self._look_at_call(module, [*args, kwargs])
            self._depth += 1
            try:
                return call(module, *args, **kwargs)
            finally:
                self._depth -= 1
                if not is_training and self.num_steps:
                    self._look_at_evaluation(module)

        return called

    def _making_data_parallel(self, init: Callable) -> Callable:
        def making(*args: Any, **kwargs: Any) -> None:
            self.log.note("DataParallel")
            init(*args, **kwargs)

        return making

    def _meet(self, module: nn.Module) -> None:
        self.networks.add(module)
        for name, p in self.networks.named_parameters():
            self.at_first.setdefault(name, p)
        self.look_for_parameters()

    def _look_at_call(self, module: nn.Module, args: list[Any]) -> None:
        self._meet(module)
        if not self._has_copied and self.num_steps and not self.settings.to_the_end:
            with suppress(OSError):  # without a copy, the resumed run is not tried
                self._copy_checkpoint()
        if not self.num_steps:
            self._before_step = {"random_state": random_state(), "line": script_line(),
                                 "dropout": any(map(_drops, module.modules()))}
        self._phase = "training"
        if not self.forwards:
            self._buffers_before = self.keep_all(self.networks.named_buffers())
        self.forwards += 1
        self.note_line("forward")
        batch = next(filter(None, map(with_rows, args)), [])
        self.micro_batches += [len(x) for x in batch[:1]]
        self.examples += keys_of_rows(batch)

    def _copy_checkpoint(self) -> None:
        """If there is a checkpoint by now, copy the files that this rank has written."""
        saved = self._saved or next((path for path in self.files.written() if path.endswith(".distcp")), "")
        if not saved:
            return
        self._has_copied = True
        paths = [path for path in self.files.written() if os.path.isfile(path)]
        is_small = sum(map(os.path.getsize, paths)) <= KEPT_BYTES
        if is_small:
            folder = Path(self.settings.folder, COPIES)
            folder.mkdir(exist_ok=True)
            names = {path: f"{os.getpid()}-{i}" for i, path in enumerate(paths)}
            for path, name in names.items():
                with self.files.silent():
                    shutil.copyfile(path, folder / name)
            Path(self.settings.folder, f"{os.getpid()}{COPIED}").write_text(json.dumps(names), "utf8")
        if not os.path.exists(saved):  # it has been renamed since
            beside = [path for path in paths if os.path.dirname(path) == os.path.dirname(os.path.realpath(saved))]
            saved = max(beside or paths, key=os.path.getmtime, default=saved)
        path = os.path.dirname(saved) if saved.endswith(".distcp") else saved
        self.log.note("checkpoint", steps=self.num_steps, path=path, is_small=is_small)

    def _look_at_evaluation(self, module: nn.Module) -> None:
        if self._phase == "evaluation":
            return
        self._phase = "evaluation"
        module = unwrapped(module)
        self.log.note("evaluation", training=module.training and any(
            isinstance(m, (WITH_DROPOUT, nn.modules.batchnorm._BatchNorm)) for m in module.modules()),
            buffers=self.keep_all((name, x) for name, x in module.named_buffers() if x.is_floating_point()),
            line=script_line())

    def look_for_parameters(self) -> None:
        """Include DTensors that are whole on each rank."""
        for p in self.networks.parameters():
            if hasattr(p, "device_mesh") and can_be_put_together(p) and len(ranks_of_parts(p)) == 1:
                self._add_part(p)
        super().look_for_parameters()

    def look_at_wrapper(self, module: nn.Module, _: str, inner: nn.Module | None) -> None:
        """Include the network of a DDP."""
        if isinstance(module, DistributedDataParallel) and inner is not None:
            self._meet(inner)
        super().look_at_wrapper(module, _, inner)

    def _cutting(self, init: Callable) -> Callable:
        def cutting(of: Any, *args: Any, **kwargs: Any) -> None:
            init(of, *args, **kwargs)
            self._add_part(of.sharded_param)

        return cutting

    def _add_part(self, part: Tensor) -> None:
        if id(part) not in self._parts and can_be_put_together(part):
            self._parts[id(part)] = part

    def _making_whole(self, make: Callable) -> Callable:
        def making_whole(of: Any) -> None:
            make(of)
            whole, part = of.unsharded_param, of.sharded_param  # the latter may be new
            self.networks.in_parts[id(whole)] = of
            self._add_part(part)
            if part.requires_grad and id(part) not in self._with_hooks and not self._has_ended:
                self._with_hooks.add(id(part))
                self.hooks.append(part.register_post_accumulate_grad_hook(self._arriving))
                if id(whole) not in self.hooked:
                    self.hooked[id(whole)] = whole
                    self.hooks.append(whole.register_hook(
                        lambda grad: self.look_at_gradient(of.sharded_param, grad)))

        return making_whole

    def _arriving(self, part: Tensor) -> None:
        self.arrived[id(part)] = not self.has_no_gradient(part)

    def has_no_gradient(self, p: Tensor) -> bool:
        """Of a parameter in parts, whether this rank's part is zero."""
        return p.grad is None or not local(p.grad).any()

    def would_have_arrived(self, p: Tensor) -> bool:
        """Of a parameter in parts, whether an exchange has been seen; this rank's part may be zero even then."""
        return id(p) not in self._with_hooks or (
            id(p) in self.arrived and (self.arrived[id(p)] or p.grad is None))

    def keep_own(self, p: Tensor, grad: Tensor) -> Tensor:
        """Of a parameter in parts, each part of it."""
        return cut_like(local(grad), p, self.keep) if id(p) in self._parts else self.keep(grad)

    def _ranks_of_parts(self) -> dict[str, tuple[int, ...]]:
        return {name: ranks_of_parts(p) for name, p in self.networks.named_parameters() if self._is_in_parts(p)}

    def _is_in_parts(self, p: Tensor) -> bool:
        """Whether its parts can be put together; not if its gradient is still to be added up."""
        placements: Any = getattr(p.grad, "placements", ())
        return id(p) in self._parts and not any(placement.is_partial() for placement in placements)

    def refuse_shards(self) -> None:
        """Do not refuse sharded parameters: they are watched as far as possible."""

    def _hooking(self, register: Callable) -> Callable:
        def hooking(x: Tensor, hook: Callable) -> Any:
            if x.is_leaf and x.requires_grad and isinstance(x, nn.Parameter) and id(x) not in self.hooked:
                self.hooked[id(x)] = x  # the script's hook may exchange the gradient, so ours comes first
                self.hooks.append(register(x, partial(self.look_at_gradient, x)))
            return register(x, hook)

        return hooking

    # losses

    def _going_backward(self, backward: Callable) -> Callable:
        def going(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self.num_backwards += 1
            with suppress(Exception):  # the graph's own names may change with PyTorch's version
                self._gathers |= watch_loss(tensors, self._terms.append)
            with suppress(RuntimeError, TypeError, NotImplementedError):  # such as a complex number
                if isinstance(tensors, Tensor) and tensors.numel() == 1 and not hasattr(tensors, "device_mesh"):
                    self._losses.append(float(tensors.detach()))
            self.note_line("backward")
            self._is_in_backward = True
            try:
                return backward(tensors, *args, **kwargs)
            finally:
                self._is_in_backward = False

        return going

    def scaled(self, scale: Callable) -> Callable:
        """Also note whether the scaler is enabled."""
        inner = super().scaled(scale)

        def scaled(scaler: Any, outputs: Any) -> Any:
            self._scaler_scales = scaler.is_enabled()
            return inner(scaler, outputs)

        return scaled

    def _unscaling(self, unscale: Callable) -> Callable:
        def unscaling(*args: Any, **kwargs: Any) -> Any:
            self._unscaled = True
            return unscale(*args, **kwargs)

        return unscaling

    def clipping(self, clip: Callable) -> Callable:
        """Also note the gradients as they are before a step's first clipping."""
        inner = super().clipping(clip)

        def clipping(*args: Any, **kwargs: Any) -> Any:
            if self._scaler_scales and not self._unscaled and self.scale != 1:
                self.log.note("clipped while scaled", scale=self.scale, line=script_line())
            before = self.gradients()
            self._at_clip = before if self._at_clip is None else self._at_clip
            return inner(*args, **kwargs)

        return clipping

    # steps

    def _adding(self, add: Callable) -> Callable:
        def adding(optimizer: Optimizer, param_group: Any) -> Any:
            result = add(optimizer, param_group)
            if not any(optimizer is other for other in self.optimizers):
                self.optimizers.append(optimizer)
            return result

        return adding

    def add_step(self, step: Step, optimizer: Any) -> None:
        """Record a step."""
        terms = [term._replace(weight=term.weight / self.scale, factor=term.factor / self.scale)
                 for term in self._terms]
        number = next((i for i, other in enumerate(self.optimizers) if other is optimizer), -1)
        if not self.num_steps and self._before_step:  # an earlier forward pass may have been a trial
            self.log.note("forward pass before the first step", **self._before_step)
        self.log.note("step", step=step, terms=terms, losses=self._losses, gathers=self._gathers, optimizer=number,
                      buffers_before=self._buffers_before, at_clip=self._at_clip,
                      method=type(optimizer).__name__, has_state=self._has_state, has_loaded=self._has_loaded,
                      constants=self._constants,
                      is_sharded=self._is_sharded(), parts=self._ranks_of_parts(),
                      holds_wholes=any(id(p) in self.networks.in_parts for group in optimizer.param_groups
                                       for p in group["params"]),
                      is_fsdp=any(hasattr(module, "unshard") for module in self.networks.modules()),
                      never_trained=self.networks.never_trained(self.optimizers, set(step.own)),
                      divides_by_own=any(map(_divides_by_own, self.networks.modules())),
                      has_gradient=any(p.grad is not None for group in optimizer.param_groups for p in group["params"]),
                      hooked=any(getattr(one, "_comm_hooks", None) for one in self.wrappers),
                      wrapped=bool(self.wrappers), no_sync=self.unsent, random_state=random_state(),
                      other_states=other_states(),
                      passes=sum(known.passes for known in self.loaders.values()),
                      group_size=min((one.process_group.size() for one in self.wrappers), default=0))
        self.num_steps += 1
        if self.num_steps >= (MOST_STEPS_OF_PASSES if self.loaders else MOST_STEPS):
            self.enough()

    def _is_sharded(self) -> bool:
        """Whether a rank has only a part of a parameter, and how the parts belong together is not known."""
        return any(hasattr(p, "device_mesh") and not self._is_in_parts(p)
                   for p in self.networks.parameters()) or any(
            getattr(m, "cut_over_ranks", False) or type(m).__name__ == "FullyShardedDataParallel"
            for m in self.networks.modules())

    def _look_before(self, optimizer: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        has_closure = callable(kwargs.get("closure", args[1] if len(args) > 1 else None))  # with a backward pass
        if optimizer is not self._stepped and not has_closure:
            self._recall({id(p) for group in optimizer.param_groups for p in group["params"]})
        self._stepped = optimizer
        self._take_what_waits()
        if not self.num_steps:
            self._constants = {name for name, p in self.networks.named_parameters()
                               if id(p) in self._parts and len(local(p).unique()) < 2}
        self._has_state = any(isinstance(x, Tensor) for state in optimizer.state.values() for x in state.values())
        return super()._look_before(optimizer, args, kwargs)

    def _recall(self, held: set[int]) -> None:
        """If several optimizers step after one backward pass, it belongs to each of them."""
        own = {number: {p: grad for p, grad in grads.items() if p in held}
               for number, grads in self._before.get("_passes", {}).items()}
        if any(own.values()) and not any(held & grads.keys() for grads in self._passes.values()):
            vars(self).update(self._before, _passes=own, _lines=dict(self._before["_lines"]), _recalled=True)

    def _take_what_waits(self) -> None:
        """A gradient also holds earlier passes, after which only other optimizers have stepped."""
        known = {id(p): p for p in self.networks.parameters()}
        waiting = {key: grad for key, grad in self.waiting.items()
                   if key in known and not self.has_no_gradient(known[key])}
        if self._recalled:  # the last of them is one of these
            waiting = {key: grad for key, grad in waiting.items() if any(key in own for own in self._passes.values())}
            for own in self._passes.values():
                for key in own.keys() & waiting.keys():
                    del own[key]
        if waiting:
            self._passes[EARLIER] = waiting

    def forget(self) -> None:
        """Begin a new step."""
        if self._stepped is not None:
            held = {id(p) for group in self._stepped.param_groups for p in group["params"]}
            waiting = self._passes.pop(EARLIER, {}) if not self._recalled else dict(self.waiting)
            for own in self._passes.values() if not self._recalled else ():
                waiting |= {key: waiting[key] + grad if key in waiting else grad for key, grad in own.items()}
            self.waiting = {key: grad for key, grad in waiting.items() if key not in held}
        if self._passes and not self._recalled:
            self._before = {name: vars(self)[name] for name in OF_A_BACKWARD_PASS}
        self._recalled = False
        super().forget()
        self._terms = []
        self._losses: list[float] = []
        self._buffers_before: Values = {}  # as the first forward pass of the step finds them
        self._gathers = False  # whether gradients go through a collective of the script's own
        self._unscaled = False
        self._at_clip: Values | None = None

    # data

    def _beginning(self, init: Callable) -> Callable:
        def beginning(iterator: Any, loader: DataLoader, *args: Any, **kwargs: Any) -> None:
            self._begin(iterator, loader)
            init(iterator, loader, *args, **kwargs)

        return beginning

    def _again(self, reset: Callable) -> Callable:
        def again(iterator: Any, loader: DataLoader, first_iter: bool = False) -> None:
            if not first_iter:  # of workers that stay, whose iterator is used again
                self._begin(iterator, loader)
            reset(iterator, loader, first_iter)

        return again

    def _begin(self, iterator: Any, loader: DataLoader) -> None:
        """A pass through a loader begins, of any kind of loader, drawn from by the script or by a trainer."""
        if get_worker_info() is not None or self._has_ended:
            return
        line = script_line()
        known = self.loaders.setdefault((id(loader.dataset), line), _Loader(len(self.loaders), loader, line))
        known.loader = loader
        known.close()
        if known.trained >= self.settings.epochs or self.num_passes_with_steps >= MOST_PASSES:
            self.enough()
        if known.passes and is_in_next(sys._getframe(1)):
            self.log.note("begun again")
        if not known.passes:
            self._look_at_loader(known)
        known.passes += 1
        iterator.__dict__.pop("_d2lpar_indices", None)
        iterator._d2lpar_pass = known.last = _Pass(self, known, iterator, random_state())
        self._go_to(known.last)

    def _go_to(self, one: _Pass) -> None:
        """What is done from now on is done with the batches of this pass."""
        if self.current is not None and self.current is not one:
            self.current.look()
        self.current = one

    def _drawing(self, draw: Callable) -> Callable:
        def drawing(iterator: Any) -> Any:
            one = iterator.__dict__.get("_d2lpar_pass")
            return draw(iterator) if one is None or self._has_ended else one.draw(draw, sys._getframe(1))

        return drawing

    def _fetching(self, fetch: Callable) -> Callable:
        def fetching_examples(fetcher: Any, indices: Any) -> Any:
            worker = get_worker_info()
            file = Path(self.settings.folder, f"{self.log.rank}-{worker.id}{OF_WORKER}") if worker else None
            if file is None or file.exists() or self.log.rank is None:
                return fetch(fetcher, indices)
            before = other_states()
            result = fetch(fetcher, indices)
            after = other_states()
            with suppress(OSError):
                file.write_text(json.dumps({name: x for name, x in before.items() if after[name] != x}), "utf8")
            return result

        return fetching_examples

    def _look_at_loader(self, known: _Loader) -> None:
        loader, sampler = known.loader, sampler_of(known.loader)
        at_ends, is_random = (None, False) if isinstance(loader.dataset, IterableDataset) else probe(loader.dataset)
        self.log.note("loader", number=known.number, sampler=type(sampler).__name__, line=known.line,
                      examples=length(loader.dataset), drawn=length(sampler), batches=length(loader),
                      at_ends=at_ends, is_random=is_random,
                      distributed=takes_a_part(loader),
                      drops=bool(getattr(sampler, "drop_last", False)))

    # the end

    def _resuming(self, load: Callable) -> Callable:
        def resuming(optimizer: Optimizer, state_dict: Any) -> Any:
            if state_dict.get("state") and not self.num_steps:  # otherwise nothing has been trained, or just now
                self.resumed = self.resumed or script_line()
            return load(optimizer, state_dict)

        return resuming

    def _saving(self, save: Callable) -> Callable:
        def saving(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, (str, os.PathLike)):
                self.log.note("save", file=os.path.abspath(f), line=script_line())
                self._saved = os.path.abspath(f)
            self.files.will_save(f)
            return save(obj, f, *args, **kwargs)

        return saving

    def _loading(self, load: Callable) -> Callable:
        def loading_a_file(*args: Any, **kwargs: Any) -> Any:
            self._has_loaded |= not self.num_steps
            return load(*args, **kwargs)

        return loading_a_file

    def _saving_script(self, save: Callable) -> Callable:
        def saving(module: Any, f: Any, **kwargs: Any) -> Any:
            self.files.will_save(f)
            return save(module, f, **kwargs)

        return saving

    def _scheduling(self, step: Callable) -> Callable:
        def scheduling(scheduler: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
            with suppress(TypeError, ValueError):
                self.log.note("plateau", metric=float(metrics), line=script_line())
            return step(scheduler, metrics, *args, **kwargs)

        return scheduling

    def fail(self, problem: BaseException) -> tuple[str, list[traceback.FrameSummary]]:
        """Note that the run ended with an error; return its words, and its frames without those of `watch`."""
        error = "".join(traceback.format_exception_only(problem)).rstrip()
        frames = [f for f in traceback.extract_tb(problem.__traceback__)
                  if os.path.dirname(f.filename) != HERE and not f.filename.startswith("<frozen")]
        own = [f for f in frames if of_the_script(f.filename)]
        line = f"{os.path.basename(own[-1].filename)}, line {own[-1].lineno}: `{own[-1].line}`" if own else ""
        under = under_rank_test((f.filename, f.lineno or 0) for f in reversed(own))
        in_collective = bool(frames) and frames[-1].filename.startswith(DISTRIBUTED)
        self.end(error, line=line, under=under, in_collective=in_collective)
        return error, frames

    def _failing(self, run: Callable) -> Callable:
        def running(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except Exception as problem:  # multiprocessing prints it, and ends the rank
                self.fail(problem)
                raise

        return running

    def end(self, error: str, enough: bool = False, **where: Any) -> None:
        """Note how the run ended, once."""
        if not self._has_ended and (dist.is_initialized() or not self.settings.spawns):
            for known in self.loaders.values():
                known.close()
            self._has_ended = True
            parameters: Values = {}
            with suppress(Exception):
                parameters = self.keep_all(self.networks.named_parameters())
            drawn = {file.stem.partition("-")[2]: json.loads(file.read_text("utf8"))
                     for file in Path(self.settings.folder).glob(f"{self.log.rank}-*{OF_WORKER}")}
            self.log.note("end", error=error, enough=enough, steps=self.num_steps, backwards=self.num_backwards,
                          parameters=parameters, parts=self._ranks_of_parts(), has_optimizer=bool(self.optimizers),
                          rates=[[float(group.get("lr", 0.0)) for group in one.param_groups]
                                 for one in self.optimizers],
                          drawn_by_workers=drawn, asked=sorted(self.asked), resumed=self.resumed,
                          networks=self.networks.names(), settings=settings_left_out(), **{"line": ""} | where)

    def enough(self) -> None:
        """Stop, as enough was seen: end the run, or restore PyTorch's functions and let it go on."""
        if self._has_ended:
            return
        self.end("", enough=True)
        if self.settings.to_the_end:
            self.stop()
            return
        with suppress(ValueError):  # in a thread
            signal.signal(signal.SIGTERM, _leave)
        while True:
            signal.pause()  # until the watching process has heard from all ranks


def _leave(*_: object) -> None:
    """Leave the script as at its end, so that it deletes its temporary files."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)


class _Loader:
    """A loader, and how often it was iterated over."""

    def __init__(self, number: int, loader: DataLoader, line: str) -> None:
        self.number, self.loader, self.line, self.passes, self.trained = number, loader, line, 0, 0
        self.last: _Pass | None = None

    def close(self) -> None:
        """Record the last pass, which may have been left, or have given its last batch to a loop that counts them."""
        if self.last is not None:
            self.last.note(is_whole=self.last.batches == self.last.length)


class _Pass:
    """One pass through a loader, which is ended early if it is long."""

    def __init__(self, watcher: Watcher, known: _Loader, inner: Any, state: str) -> None:
        self.watcher, self.known, self.inner, self.state = watcher, known, inner, state
        self.epoch, self.batches, self.length = known.passes - 1, 0, length(known.loader)
        self.first_step, self.first_backward, self.is_noted = watcher.num_steps, watcher.num_backwards, False
        self.last_step, self.last_backward = self.first_step, self.first_backward

    def draw(self, draw: Callable, caller: Any) -> Any:
        """The next batch."""
        self.watcher._go_to(self)
        if self._has_shown_enough() and takes_the_end(caller):
            self.watcher.log.note("shortened")
            self.note(is_whole=self._draw_the_rest())
            raise StopIteration
        try:
            batch = draw(self.inner)
        except StopIteration:
            self.note(is_whole=True)
            raise
        self.batches += 1
        return batch

    def _has_shown_enough(self) -> bool:
        if self.length is None or self.length <= LONGEST_EPOCH or self.batches < SHORT_EPOCH or (
                self.watcher.settings.to_the_end or not self.watcher.settings.shortens):
            return False
        trains = self.watcher.num_backwards > self.first_backward
        return self.watcher.num_steps - self.first_step >= STEPS_OF_SHORT_EPOCH if trains else (
            self.batches >= 2 * SHORT_EPOCH)

    def _draw_the_rest(self) -> bool:
        """Draw the remaining indices without loading any data, and return whether the epoch is then complete."""
        indices, most = _indices_of(self.inner), self.length or 0
        with suppress(Exception):
            for index in self.inner._sampler_iter:
                indices.append(index)
                if len(indices) >= most or len(indices) > MOST_INDICES:
                    break
            return len(indices) == most
        return False

    def look(self) -> None:
        """What was done since its last batch belongs to this pass."""
        self.last_step, self.last_backward = self.watcher.num_steps, self.watcher.num_backwards

    def note(self, is_whole: bool) -> None:
        """Record this pass, once."""
        if self.is_noted or self.watcher._has_ended:
            return
        self.is_noted = True
        if self.watcher.current is self:
            self.look()
        steps = self.last_step - self.first_step
        trained = self.last_backward > self.first_backward
        self.known.trained += trained
        self.watcher.num_passes_with_steps += trained
        self.watcher.log.note("pass", number=self.known.number, epoch=self.epoch, trained=trained, steps=steps,
                              first_step=self.first_step,
                              batches=self.batches, is_whole=is_whole, state=self.state,
                              indices=[list(map(int, batch)) if isinstance(batch, (list, tuple)) else [int(batch)]
                                       for batch in _indices_of(self.inner) if _is_index(batch)])


def _is_index(batch: Any) -> bool:
    return all(isinstance(x, (int, np.integer)) for x in (batch if isinstance(batch, (list, tuple)) else [batch]))


def _indices_of(iterator: Any) -> list:
    return iterator.__dict__.setdefault("_d2lpar_indices", [])


def _taking_indices(take: Callable) -> Callable:
    def taking(iterator: Any) -> Any:
        index = take(iterator)
        if iterator._dataset_kind == loading._DatasetKind.Map:
            _indices_of(iterator).append(index)
        return index

    return taking


def _compiling(_: Callable) -> Callable:
    def compiling(model: Any = None, **kwargs: Any) -> Any:
        if isinstance(model, nn.Module):
            object.__setattr__(model, "_orig_mod", model)  # not as a submodule
        return model if model is not None else lambda function: function

    return compiling


def _divides_by_own(module: nn.Module) -> bool:
    """Whether `fully_shard` was given a divisor for the sum of the gradients."""
    with suppress(Exception):  # not public
        group = module._get_fsdp_state()._fsdp_param_group  # type: ignore
        return group.gradient_divide_factor is not None
    return False


def _drops(module: nn.Module) -> bool:
    return bool((isinstance(module, WITH_DROPOUT) and module.p) or
                (isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and module.dropout))


def unwrapped(module: nn.Module) -> nn.Module:
    """The network inside of wrappers."""
    while isinstance(module, DistributedDataParallel) or getattr(module, "_orig_mod", module) is not module:
        module = module.module if isinstance(module, DistributedDataParallel) else module._orig_mod  # type: ignore
    return module


def settings_left_out() -> str:
    """What a trainer's own launcher would have changed, as far as its configuration file says so; "" if nothing."""
    if "accelerate" not in sys.modules:
        return ""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface")
    files = [Path(home, "accelerate", name) for name in ("default_config.yaml", "default_config.json")]
    text = next((file.read_text("utf8", "replace") for file in files if file.exists()), "")
    known = dict(re.findall(r'^\s*"?(distributed_type|mixed_precision)"?:\s*[\'"]?(\w+)', text, re.M))
    kind, precision = known.get("distributed_type", "NO"), known.get("mixed_precision", "no")
    if kind.upper() not in ("NO", "MULTI_GPU", "MULTI_CPU"):  # on a CPU, even accelerate launch leaves it out
        return f"accelerate's configuration has distributed_type: {kind}, and the script was run without it"
    if precision == "no" or any(name.startswith("ACCELERATE_") for name in os.environ):
        return ""
    return (f"accelerate's configuration has mixed_precision: {precision}, which only its launcher reads: use "
            "`accelerate launch --cpu --num_processes 1 -m d2lpar watch`")


# what is recorded of tensors


@lru_cache(8)
def _row_weights(n: int, kind: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64).to(device, kind)


@lru_cache(4096)
def _weights(n: int) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


@torch.no_grad()
def sketch(x: Tensor) -> Tensor:
    """32 sums of a tensor's elements, in float64, each weighted with a random number that its index determines."""
    x = x.to_local() if hasattr(x, "device_mesh") else x  # type: ignore
    x = x.detach().to_dense()
    x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    x = x.reshape(-1)
    x = x if x.dtype == torch.float64 else x.to(torch.float32)
    if len(x) > 8 * COLUMNS:
        rows = x[:len(x) // COLUMNS * COLUMNS].view(-1, COLUMNS) @ _row_weights(COLUMNS, x.dtype, x.device)
        x = torch.cat([rows, x[len(x) // COLUMNS * COLUMNS:]])
    x = x.cpu().double()
    return nn.functional.pad(x * _weights(len(x)), (0, -len(x) % NUMBERS)).view(-1, NUMBERS).sum(0)


# a watched process

watchers: list[Watcher] = []


def install() -> None:
    """Watch this process, as the environment says."""
    if not watchers:
        watchers.append(Watcher(Settings(**json.loads(os.environ[SETTINGS]))))
        watchers[0].start()
        Path(watchers[0].settings.folder, f"{os.getpid()}.begun").touch()


def run_script(words: list[str]) -> None:
    """Run a script, or with "-m" a module, as Python does, and note how it ends."""
    install()
    watcher, is_module = watchers[0], words[0] == "-m"
    name = words[1] if is_module else words[0]
    sys.argv = words[1:] if is_module else list(words)
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(name))
    error, code = "", 0
    try:
        if is_module:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(os.path.abspath(name), run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
        error = f"SystemExit: {leaving.code}" if code else ""
    except BaseException as problem:
        code, (error, frames) = 1, watcher.fail(problem)
        print("Traceback (most recent call last):\n", *traceback.format_list(frames), error, sep="", file=sys.stderr)
    watcher.end(error)
    sys.exit(code)
