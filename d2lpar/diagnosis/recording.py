"""Records a training run: what gradient each step took, whose it was, and where it led.

PyTorch's own hooks note what passes, so the training code need not be changed. `compare` compares what was recorded on
several ranks with what was recorded on a single device.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Values = dict[str, Tensor]
SHARDED = ("this training shards its parameters over the ranks, as fully_shard does: diagnose compares replicas, which "
           "are whole on each rank")
COLLECTIVES = ("all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor "
               "barrier gather scatter all_to_all all_to_all_single all_gather_object broadcast_object_list "
               "gather_object scatter_object_list send recv").split()
REDUCING = {name for name in COLLECTIVES if name.startswith(("all_reduce", "reduce", "all_to_all"))}
HERE = os.path.dirname(__file__)
TORCH = os.path.join(os.path.dirname(torch.__file__), "")
FSDP = os.path.join(TORCH, "distributed", "fsdp", "")
_LIBRARIES = TORCH, os.path.join(sysconfig.get_path("stdlib"), "")


class Step(NamedTuple):
    """One step of an optimizer, in tensors by the names of the network's parameters."""

    before: Values  # the parameters as the step found them
    gradients: Values  # what the optimizer took
    unclipped: Values  # what PyTorch's last clipping found, if the step took the result of that; else as `gradients`
    passes: list[Values]  # what each of this process's backward passes since the last step gave, before any exchange
    thrown_away: int  # backward passes whose gradients were zeroed before the step
    stale: bool  # whether the first of them found gradients of an earlier step
    after: Values  # the parameters as the step left them
    trainable: frozenset[str]  # what asked for a gradient
    replaced: frozenset[str]  # what is not the tensor that it was when the training began
    rates: list[float]  # of the optimizer's groups
    others: list[Tensor]  # parameters of the optimizer that are not the network's, as the step left them
    held: frozenset[str]  # the network's parameters that the optimizer has
    scale: float  # of the GradScaler
    eps: float  # of the gradients' dtype, the coarsest of several, as in torch.finfo
    forwards: int  # forward passes since the last step, in training
    examples: list[bytes]  # what went through the network in them, a key for each
    micro_batches: list[int]  # how many examples each of them had
    exchanging: int  # forward passes through a wrapper that was not told to keep the gradients
    wrapped: frozenset[str]  # parameters in a wrapper
    bypassed: frozenset[str]  # those in a wrapper that no forward pass since the last step went through
    lost: frozenset[str]  # parameters that a wrapper was made with, and that are replaced or frozen now
    buffers: Values  # of the network, as the step left them
    lines: dict[str, str]  # of the script: of the last "forward", "backward", "clip" and "step"
    size: int  # the number of elements of the optimizer's gradients
    reduced: int  # the number of elements, other than parameters, that were given to collectives in REDUCING inside it

    @property
    def own(self) -> Values:
        """What all of this process's backward passes gave together."""
        total: Values = {}
        for grads in self.passes:
            total |= {name: total[name] + grad if name in total else grad for name, grad in grads.items()}
        return total


class Record(NamedTuple):
    """What was seen of a training run."""

    buffers: Values  # of the network, as its first forward pass found them
    start: Values  # its parameters, as the first forward pass in training found them
    steps: list[Step]
    end: Values  # the parameters as the run left them
    wrapped: bool  # whether there was a DistributedDataParallel
    hooked: bool  # whether one had a communication hook of the script's own
    group_size: int  # how many ranks the smallest of them averages over; 0 without one
    no_sync: bool  # whether one of its forward passes was told not to send
    losses: list[float] | None  # what it returned, if that was a list of numbers


class Recorder:
    """Notes each step that an optimizer of `torch.optim` makes between `start` and `stop`.

    A step within another one is a part of it. A gradient is noted without the factor of a GradScaler. With `crumbs`,
    a file holds the line of the script that the process reached last, even if it is killed.
    """

    def __init__(self, net: Any, crumbs: Path | None = None) -> None:
        self.net, self.crumbs = net, crumbs  # a module, or what has the same named_parameters and the like
        self.at_first = dict(net.named_parameters())
        self.buffers: Values | None = None
        self.begin: Values | None = None  # the parameters
        self.steps: list[Step] = []
        self.wrappers: list[Any] = []
        self.wrapped_names: dict[int, str] = {}  # the parameters that they were made with
        self._kept: list[Tensor] = []  # these, so that no other tensor gets the place of one
        self._optimizers: set[type] = set()
        self.unsent = False
        self.hooked: dict[int, Tensor] = {}
        self._open: list[Step] = []  # steps that have begun, the outer ones first
        self._last_hooks: list[Any] = []
        self.hooks: list[Any] = []
        self.patched: list[Any] = []
        self.scale = 1.0
        self.waiting: dict[int, Tensor] = {}  # gradients of earlier passes that only another optimizer will take
        self.forget()

    def __deepcopy__(self, memo: dict) -> Recorder:
        return self  # a network may be copied with its hooks

    def forget(self) -> None:
        """Begin a new step."""
        self._passes: dict[int, dict[int, Tensor]] = {}  # by backward pass, by parameter
        self._thrown_away: set[int] = set()
        self._stale = False
        self.examples: list[bytes] = []
        self.micro_batches: list[int] = []
        self.forwards = self._exchanging = 0
        self._called: set[int] = set()  # the wrappers that a forward pass went through
        self._clipped: tuple[Values, Values] | None = None  # the gradients before and after PyTorch's last clipping
        self._lines: dict[str, str] = {}
        self._reduced = 0
        self.arrived: dict[int, bool] = {}  # by parameter in parts, exchanged since the last step: is it not zero?

    def keep(self, x: Tensor) -> Tensor:
        """What is noted of a tensor."""
        return _copy(x)

    def keep_all(self, tensors: Iterable[tuple[str, Any]]) -> Values:
        """What is noted of several, by name."""
        return {name: self.keep(x) for name, x in tensors if x is not None}

    def start(self) -> None:
        """Hook PyTorch."""
        self.look_for_parameters()
        self.replace(torch.amp.GradScaler, "scale", self.scaled)
        # not public: what clip_grad_norm_ calls, even if a script imported that by name
        self.replace(clip_grad, "_clip_grads_with_norm_", self.clipping)
        for name in COLLECTIVES:
            self.replace(dist, name, self._talking)
        for patch in self.patched:
            patch.start()
        self.hooks += [register_optimizer_step_pre_hook(self._wait_for_the_last_hook),
                        register_optimizer_step_post_hook(self._look_after),
                        register_module_module_registration_hook(self.look_at_wrapper)]
        if isinstance(self.net, nn.Module):
            self.hooks.append(self.net.register_forward_pre_hook(self._look_at_forward))

    def replace(self, owner: Any, name: str, change: Callable[[Callable], Callable]) -> None:
        """Replace a function, if this version has it, by one with the same signature, which a trainer may look at."""
        if hasattr(owner, name):
            old = getattr(owner, name)
            self.patched.append(mock.patch.object(owner, name, functools.wraps(old)(change(old))))

    def stop(self) -> None:
        """Leave PyTorch as it was."""
        for hook in self.hooks + self._last_hooks:
            hook.remove()
        for patch in reversed(self.patched):
            patch.stop()
        for kind in self._optimizers:  # the script's own classes go to ranks as they were, not as PyTorch hooked them
            step = kind.__dict__.get("step")
            if not kind.__module__.startswith("torch.") and hasattr(step, "__wrapped__"):
                kind.step = step.__wrapped__

    def record(self, returned: Any) -> Record:
        """What was seen, and what the training returned."""
        return Record(self.buffers or {}, self.begin or {}, self.steps, self.keep_all(self.net.named_parameters()),
                      bool(self.wrappers), any(getattr(one, "_comm_hooks", None) for one in self.wrappers),
                      min((wrapper.process_group.size() for wrapper in self.wrappers), default=0), self.unsent,
                      _numbers(returned))

    # forward passes

    def _look_at_forward(self, module: nn.Module, args: tuple) -> None:
        if module is not self.net:  # a copy of it, such as the average of its weights
            return
        if torch._C._functorch.peek_interpreter_stack():  # not public: within torch.func.grad tensors have no numbers
            return
        if self.buffers is None:
            self.buffers = self.keep_all(self.net.named_buffers())
        self.look_for_parameters()
        if self.net.training and torch.is_grad_enabled():
            if self.begin is None:
                self.begin = self.keep_all(self.net.named_parameters())
            self._note_forward(args)

    def _note_forward(self, args: Sequence[Any]) -> None:
        self.forwards += 1
        self.note_line("forward")
        self.examples.extend(row_keys(args[0]) if args else ())
        if args and isinstance(args[0], Tensor) and args[0].dim():
            self.micro_batches.append(len(args[0]))

    def look_at_wrapper(self, module: nn.Module, _: str, inner: nn.Module | None) -> None:
        """Remember a DDP when its network is put into it."""
        if isinstance(module, DistributedDataParallel) and not any(module is other for other in self.wrappers):
            self.wrappers.append(module)
            asking = [(name, p) for name, p in inner.named_parameters() if p.requires_grad] if inner is not None else []
            self.wrapped_names |= {id(p): name for name, p in asking}
            self._kept.extend(p for _, p in asking)
            self.hooks.append(module.register_forward_pre_hook(self._look_at_wrapped_forward))

    def _look_at_wrapped_forward(self, wrapper: nn.Module, _: tuple) -> None:
        self._called.add(id(wrapper))
        if wrapper.require_backward_grad_sync:
            self._exchanging += torch.is_grad_enabled()
        else:
            self.unsent = True

    # backward passes

    def look_for_parameters(self) -> None:
        """Hook the gradients of parameters that are new or no longer frozen."""
        for p in self.net.parameters():  # again in each forward pass: some may be new, or no longer frozen
            if p.requires_grad and id(p) not in self.hooked:
                self.hooked[id(p)] = p
                self.hooks.append(p.register_hook(partial(self.look_at_gradient, p)))

    def look_at_gradient(self, p: Tensor, grad: Tensor | None) -> None:
        """Note a gradient before it is exchanged."""
        if grad is None:  # DDP hands None on if the loss has not used a parameter
            return
        number = torch._C._current_graph_task_id()  # not public, but one for each backward pass
        if number not in self._passes:
            self.note_line("backward")
            self._passes[number] = {}
        is_zero = self.has_no_gradient(p)
        if is_zero:
            self.waiting.pop(id(p), None)
        elif len(self._passes) == 1 and id(p) not in self._passes[number] and id(p) not in self.waiting:
            self._stale = True
        if is_zero and self.would_have_arrived(p):  # the gradients of earlier passes were zeroed
            for earlier, own in self._passes.items():
                if earlier != number and own.pop(id(p), None) is not None:
                    self._thrown_away.add(earlier)
        own = self._passes[number]
        own[id(p)] = own.get(id(p), 0) + self.keep_own(p, grad) / self.scale

    def has_no_gradient(self, p: Tensor) -> bool:
        """Whether a parameter's gradient is zero, or there is none."""
        return p.grad is None or not p.grad.any()

    def would_have_arrived(self, p: Tensor) -> bool:
        """Whether an earlier pass since the last step would show in a parameter's gradient."""
        return True

    def keep_own(self, p: Tensor, grad: Tensor) -> Tensor:
        """What is noted of a rank's own gradient of a parameter."""
        return self.keep(grad)

    def scaled(self, scale: Callable) -> Callable:
        """In place of a GradScaler's `scale`."""
        def scaled(scaler: Any, outputs: Any) -> Any:
            result = scale(scaler, outputs)
            self.scale = float(scaler.get_scale())
            return result

        return scaled

    def clipping(self, clip: Callable) -> Callable:
        """In place of what clips gradients."""
        def clipping(*args: Any, **kwargs: Any) -> Any:
            before = self.gradients()
            result = clip(*args, **kwargs)
            self._clipped = before, self.gradients()
            self.note_line("clip")
            return result

        return clipping

    def _talking(self, collective: Callable) -> Callable:
        def talking(*args: Any, **kwargs: Any) -> Any:
            if not sys._getframe(1).f_code.co_filename.startswith(FSDP):  # which sends parameters, and averages
                self.note_line(f"dist.{collective.__name__}")
            if self._open and collective.__name__ in REDUCING:
                self._reduced += self._elements([*args, *kwargs.values()])
            return collective(*args, **kwargs)

        return talking

    def _elements(self, args: Sequence[Any]) -> int:
        """How many elements a collective is given, not counting parameters; 0 in a group of a single rank."""
        group = next((x for x in args if isinstance(x, dist.ProcessGroup)), None)
        parameters = {p.untyped_storage().data_ptr() for p in self.net.parameters() if not hasattr(p, "device_mesh")}
        given = [[x for x in (arg if isinstance(arg, (list, tuple)) else [arg]) if isinstance(x, Tensor)
                  and x.untyped_storage().data_ptr() not in parameters] for arg in args]
        most = max((sum(x.numel() for x in tensors) for tensors in given), default=0)
        return most if dist.get_world_size(group) > 1 else 0

    # steps

    def gradients(self) -> Values:
        """As the parameters have them now."""
        return self.keep_all((name, p.grad) for name, p in self.net.named_parameters())

    def refuse_shards(self) -> None:
        """Raise ValueError if a rank has only a part of a parameter."""
        if any(getattr(m, "cut_over_ranks", False) for m in self.net.modules()):
            raise ValueError(SHARDED)

    def _look(self, optimizer: Any) -> Step:
        self.refuse_shards()
        self.note_line("step")
        now, gradients = dict(self.net.named_parameters()), self.gradients()
        before, clipped = self._clipped or ({}, {})
        is_clipped = bool(clipped) and clipped.keys() == gradients.keys() and all(
            torch.equal(clipped[name], x) for name, x in gradients.items())
        names = {id(p): name for name, p in now.items()}
        inside = {id(one): {names[id(p)] for p in one.parameters() if id(p) in names} for one in self.wrappers}
        passes = [{name: own[id(p)] for name, p in now.items() if id(p) in own} for own in self._passes.values()]
        return Step(
            before=self.keep_all(now.items()), gradients=gradients, unclipped=before if is_clipped else gradients,
            passes=[own for own in passes if own], thrown_away=len(self._thrown_away), stale=self._stale, after={},
            trainable=frozenset(name for name, p in now.items() if p.requires_grad),
            replaced=frozenset(name for name, p in now.items() if p is not self.at_first.get(name)),
            rates=[float(group.get("lr", 0.0)) for group in optimizer.param_groups], others=[],
            held=frozenset(names[id(p)] for group in optimizer.param_groups for p in group["params"] if id(p) in names),
            scale=self.scale,
            eps=max((torch.finfo(p.grad.dtype).eps for p in now.values() if p.grad is not None), default=0.0),
            forwards=self.forwards, examples=list(self.examples), micro_batches=list(self.micro_batches),
            exchanging=self._exchanging,
            wrapped=frozenset().union(*inside.values()),
            bypassed=frozenset().union(*(inside[key] for key in inside if key not in self._called)),
            lost=frozenset(name for key, name in self.wrapped_names.items()
                           if key not in names or not now[names[key]].requires_grad), buffers={},
            lines=dict(self._lines), reduced=0,
            size=sum(p.grad.numel() for group in optimizer.param_groups for p in group["params"] if p.grad is not None))

    def _look_before(self, optimizer: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        self._open.append(found := self._look(optimizer))
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):  # an optimizer of one's own may take something else, such as the loss
            return None

        def seen_closure() -> Any:
            loss = closure()
            if self._open[-1] is found:  # only its first call finds the parameters as they were
                self._open[-1] = self._look(optimizer)
            return loss

        return args[:1], kwargs | {"closure": seen_closure}

    def _wait_for_the_last_hook(self, optimizer: Any, *_: Any) -> None:
        waiting = [True]  # the optimizer's own hooks come after those of all, and may change the gradients

        def look_once(*step: Any) -> tuple[tuple, dict] | None:
            return self._look_before(*step) if waiting and waiting.pop() else None

        self._last_hooks.append(optimizer.register_step_pre_hook(look_once))

    def _look_after(self, optimizer: Any, *_: Any) -> None:
        found = self._open.pop()
        self._optimizers.add(type(optimizer))
        self._last_hooks.pop().remove()
        if not self._open:
            now = dict(self.net.named_parameters())
            known = set(map(id, now.values()))
            others = [self.keep(p) for group in optimizer.param_groups for p in group["params"]
                      if id(p) not in known and p.grad is not None and not hasattr(p, "device_mesh")]
            inside = {what: line for what, line in self._lines.items() if what.removeprefix("dist.") in REDUCING}
            self.add_step(found._replace(after=self.keep_all(now.items()), others=others,
                                          lines=inside | found.lines, reduced=self._reduced,
                                          buffers=self.keep_all(self.net.named_buffers())), optimizer)
            self.forget()

    def add_step(self, step: Step, optimizer: Any) -> None:
        """Note a step that has been made."""
        self.steps.append(step)

    # lines of the script

    def note_line(self, what: str) -> None:
        """Remember the line of the script that does something."""
        line = script_line()
        if line:
            self._lines[what] = line
            if self.crumbs:
                self.crumbs.write_text(line, "utf8")


def record_training(train: Callable, net: nn.Module, batches: Sequence[tuple[Tensor, Tensor]],
                    crumbs: Path | None = None) -> Record:
    """Run `train(net, batches)`, and note each step that it makes."""
    recorder = Recorder(net, crumbs)
    recorder.start()
    try:
        returned = train(net, batches)
    finally:
        recorder.stop()
    return recorder.record(returned)


def of_the_script(name: str) -> bool:
    """Whether a file of this name is the user's: not of this package, of PyTorch, of Python or of another library."""
    return (os.path.dirname(name) not in (HERE, os.path.dirname(HERE)) and not name.startswith((*_LIBRARIES, "<frozen"))
            and "site-packages" not in name)


def script_line() -> str:
    """The line of the user's script that is being run, as in "train.py, line 27: `loss.backward()`"; "" if unknown."""
    for frame in script_frames():
        name = frame.f_code.co_filename
        code = linecache.getline(name, frame.f_lineno, frame.f_globals).strip()
        where = "line" if name.startswith("<") else f"{_file_name(name)}, line"
        return f"{where} {frame.f_lineno}" + f": `{code}`" * bool(code)
    return ""


def script_frames() -> Iterator[FrameType]:
    """The frames of the user's script, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if of_the_script(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _file_name(name: str) -> str:
    """The name of a file without its folder; a notebook's cells have names that say nothing."""
    return "this notebook" if "ipykernel_" in name else os.path.basename(name)


def _copy(x: Tensor) -> Tensor:
    """In float64, and a complex number as two."""
    if hasattr(x, "device_mesh"):  # a DTensor
        raise ValueError(SHARDED)
    x = x.detach().cpu().to_dense()
    return (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).to(torch.float64, copy=True)


def row_keys(X: Any, rows: int | None = None, values: int | None = None) -> list[bytes]:
    """One for each example, the same for the same values up to float32; none if X is not a tensor of numbers.

    Of a large X, only so many rows, and the first values of each, may be looked at.
    """
    if not isinstance(X, Tensor) or not X.dim() or hasattr(X, "device_mesh"):
        return []
    try:
        X = X.detach().to_dense()[:rows]
        X = torch.view_as_real(X.resolve_conj()) if X.is_complex() else X
        X = X.flatten(1)[:, :values] if X.dim() > 1 else X[:, None]
        return [hashlib.blake2b(row.numpy().tobytes(), digest_size=8).digest() for row in X.float().cpu()]
    except (RuntimeError, TypeError):  # such as nested tensors
        return []


def _numbers(returned: Any) -> list[float] | None:
    """A list of the numbers, which may be tensors; None for anything else."""
    try:
        return [float(x) for x in returned] or None
    except (TypeError, ValueError, RuntimeError):
        return None
