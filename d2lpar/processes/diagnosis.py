"""Is my script right? One worker and k ranks side by side, and in words what differs.

`diagnose` runs a training of the reader's own on the same minibatches: as one worker, on ranks with equal shards, and
on ranks with unequal shards. `recording` sees what happens in each, and `rules` knows what it means.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import accumulate
from textwrap import shorten
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: what it is at import is its functions' default
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from d2lpar.base.checks import check_counts
from d2lpar.processes import RankError, RankGroup
from d2lpar.processes.rank import loopback
from d2lpar.processes.ranks import rank_device
from d2lpar.processes.recording import Record, record_training
from d2lpar.processes.rules import Diagnosis, compare, moves, note_batchnorm, same_steps

START_S = 300.0  # for the start of the ranks, which is not the script's time
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
WITH_DROPOUT = (nn.MultiheadAttention, nn.RNNBase)
HERE = os.path.dirname(__file__)
ONLY_EQUAL = {"averaged after the step", "weighted mean", "some ranks step", "fewer bits"}  # notes that say enough
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)\n    (.*)$', re.M)


def diagnose(train: Callable, make_net: Callable, X: Tensor, y: Tensor, ranks: Any = 2, num_steps: int = 3,
             timeout_s: float | None = None) -> Diagnosis:
    """Compare a training on several ranks with the same training by one worker.

    Each rank calls `train(net, batches)` in a process group, with `net = make_net()` made after a seed of the rank's
    own, and `batches`, a list of its shards (X, y). One worker does the same in this process, as a group of one, with
    the whole minibatches. `train` wraps the network if it likes, makes its optimizer from `torch.optim`, and trains;
    it may return its losses, one for each step. All is in float64, dropout is switched off, and to enter the group or
    to leave it does nothing.

    Args:
        X, y: examples, (n, ...) each; they are cut into `num_steps` minibatches.
        ranks: how many, in new processes on the CPU, also where there are GPUs; or a `RankGroup`.
        timeout_s: for each time that all ranks train; by default 20 seconds, and ten times what one worker takes.

    What only unequal shards bring to light is a note. What fails on ranks, and not on one worker, is a fault.

    Raises:
        ValueError: for arguments that make no sense, and for a `train` that makes no step.
        Exception: what `train` raises on one worker in its first step.
        TimeoutError: if the ranks do not start.
    """
    _check_diagnosis(train, make_net, X, y, ranks, num_steps, timeout_s)
    k = ranks if isinstance(ranks, int) else ranks.world_size
    batches = _cut_batches(X, y, num_steps, k)
    _check_networks(make_net)
    with RankGroup(ranks, "gloo") if isinstance(ranks, int) else nullcontext(ranks) as group:
        return _diagnose(train, make_net, batches, group, timeout_s)


def _diagnose(train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]], group: Any,
              timeout_s: float | None) -> Diagnosis:
    k, n = group.world_size, len(batches[0][1])
    equal, unequal = _cut_alike(n, k), _cut_unequally(n, k)
    found = Diagnosis(f"{k} ranks and one worker, {len(batches)} minibatches of {n} as {_sizes(equal)} and as "
                      f"{_sizes(unequal)}")

    def first_step() -> Diagnosis | None:
        """What can be said before a training fails, if it makes a step before."""
        with suppress(Exception):
            return _diagnose(train, make_net, batches[:1], group, timeout_s) if len(batches) > 1 else None

    try:
        begin = time.perf_counter()
        run_alone, alone = _run_alone(train, make_net, batches, equal)
        limit_s = timeout_s or 20 + 10 * (time.perf_counter() - begin)
        if not alone.record.steps:
            raise ValueError("train has not made a step by an optimizer of torch.optim")
        again = run_alone(seed=1)
    except Exception as error:
        if first := first_step():
            first.say_by_name("raises", error=f"after the first step, already on one worker: {_last_line(error)}")
            return first
        raise
    if alone.dropout:
        found.say_by_name("dropout")
    repeatable = same_steps(alone.record, again.record)
    if not repeatable:
        found.say_by_name("random numbers")
    if not moves(alone.record):
        found.say_by_name("other parameters")
        return found

    def compare_on(shards: list[list[int]], one: Record, found: Diagnosis) -> None:
        records = group.run(_run_rank, train, make_net, batches, shards, alone.promoted, timeout_s=limit_s)
        labels = [[y[shard] for shard in shards] for _, y in batches]
        compare(one, records, labels, found, repeatable)

    group.run(_nothing, timeout_s=START_S)  # the ranks' start is not the script's time
    try:
        group.run(_nothing, train, make_net, timeout_s=START_S)  # nor the loading of its modules
        begin = time.perf_counter()
        compare_on(equal, alone.record, found)
        limit_s = min(limit_s, 5 + 5 * (time.perf_counter() - begin))
    except (RankError, TimeoutError) as error:
        if first := first_step():
            found.faults |= first.faults
        if isinstance(error, TimeoutError):
            found.say_by_name("hangs", stands=_where_they_stand(error))
        else:
            found.say_by_name("raises", error=f"not on one worker, but on ranks: {_last_line(error)}")
        return found
    if alone.batchnorm and found.ok and repeatable:
        note_batchnorm(alone.record, run_alone(shards=None).record, found)
    if found.ok and repeatable and not found.notes.keys() & ONLY_EQUAL:
        one, other = run_alone(shards=unequal) if alone.batchnorm else alone, Diagnosis(found.about)
        try:
            if one.like_ranks:
                compare_on(unequal, one.record, other)
            words = "; ".join(f"{name}, {text}" for name, text in other.faults.items())
        except (RankError, TimeoutError) as error:
            words = f"it fails, {_last_line(error)}"
        found.notes |= {name: text for name, text in other.notes.items() if name not in found.notes}
        if words:
            found.say_by_name("unequal shards", sizes=_sizes(unequal), words=words)
    return found


class _Alone(NamedTuple):
    """A run of one worker, and what had to be done for it."""

    record: Record
    dropout: bool  # it was switched off
    batchnorm: bool  # it saw shards, or what could not be cut into shards as on ranks
    like_ranks: bool  # it saw shards only
    promoted: bool  # float32 that met float64 followed


def _run_alone(train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]],
               shards: Sequence[list[int]]) -> tuple[Callable[..., _Alone], _Alone]:
    """The yardstick: rank 0 of a group of one, in this process, which keeps its random numbers.

    Gives a function for more such runs, and the first; BatchNorm sees the examples of each shard by themselves.
    """
    def run(seed: int = 0, shards: Sequence[list[int]] | None = shards, promoted: bool = False) -> _Alone:
        own = [(X.clone(), y.clone()) for X, y in batches]
        with _group_of_one(), torch.random.fork_rng(devices=[]), _batchnorm_by_shards(shards) as met:
            record, dropout = _train_as(0, 1, train, make_net, own, promoted, other_seed=seed)
        return _Alone(record, dropout, bool(met), "whole" not in met, promoted)

    try:
        return run, run()
    except RuntimeError as error:
        if not re.search(r"dtype|scalar type|same type", str(error)):
            raise
    return partial(run, promoted=True), run(promoted=True)


def _run_rank(rank: int, train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]],
              shards: Sequence[list[int]], promoted: bool) -> Record:
    """What a rank does: its own start, its shards, the reader's training."""
    device = rank_device()
    own = [(X[shards[rank]].to(device), y[shards[rank]].to(device)) for X, y in batches]
    return _train_as(rank, len(shards), train, make_net, own, promoted)[0]


def _train_as(rank: int, k: int, train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]],
              promoted: bool, other_seed: int = 0) -> tuple[Record, bool]:
    """Train as a rank of torchrun would, in float64 and without dropout; whether there would have been any.

    With another seed the training, not the network, draws other random numbers, also where it sets a seed itself.
    """
    manual_seed = torch.manual_seed
    with _as_by_torchrun(rank, k), _without_dropout() as dropped, _Promoted() if promoted else nullcontext():
        torch.manual_seed(rank)
        net = _prepare(make_net(), dropped).to(batches[0][0].device)
        with mock.patch.object(torch, "manual_seed", lambda seed: manual_seed(int(seed) + other_seed)):
            torch.manual_seed(rank)
            return record_training(train, net, batches), bool(dropped)


def _nothing(rank: int, *loaded: Callable) -> None:
    """What ranks are started with, and load the modules of functions with."""


def _prepare(net: nn.Module, dropped: list[str]) -> nn.Module:
    """The network in float64; what goes into it follows, and no layer of it drops anything."""
    net = net.double()._apply(lambda x: x.to(torch.complex128) if x.is_complex() else x)
    for m in net.modules():
        if isinstance(m, WITH_DROPOUT) and m.dropout:
            m.dropout = 0.0
            dropped.append("in a layer")
    net.register_forward_pre_hook(lambda _, args: tuple(
        x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in args))
    return net


@contextmanager
def _as_by_torchrun(rank: int, k: int) -> Iterator[None]:
    """What torchrun tells a rank of one machine, and float64 for float; to enter or leave the group does nothing."""
    dtype = torch.get_default_dtype()
    with (mock.patch.dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(k), LOCAL_WORLD_SIZE=str(k)),
          mock.patch.object(Tensor, "float", _as_float64), mock.patch.object(nn.Module, "float", nn.Module.double),
          _without_effect(dist.init_process_group), _without_effect(dist.destroy_process_group)):
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


def _as_float64(x: Tensor) -> Tensor:
    """`x.float()` of what is computed here; single numbers are a GradScaler's, too, which knows float32 only."""
    return x.to(torch.float64 if x.dim() else torch.float32)


@contextmanager
def _without_effect(function: Callable) -> Iterator[None]:
    """The function does nothing, also where it was imported by its name."""
    inner: Any = inspect.unwrap(function)
    code = inner.__code__
    inner.__code__ = (lambda *args, **kwargs: None).__code__
    try:
        yield
    finally:
        inner.__code__ = code


@contextmanager
def _without_dropout() -> Iterator[list[str]]:
    """Nothing is dropped by layers or functions; the list then says what would have been."""
    dropped: list[str] = []

    def whole(X: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if p and training:
            dropped.append("by a function")
        return X

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *args: Any,
               **kwargs: Any) -> Tensor:
        if dropout_p:
            dropped.append("in attention")
        return attention(query, key, value, attn_mask, 0.0, *args, **kwargs)

    attention = F.scaled_dot_product_attention
    with ExitStack() as stack:
        for name in DROPOUTS:
            stack.enter_context(mock.patch.object(F, name, whole))
        stack.enter_context(mock.patch.object(F, "scaled_dot_product_attention", attend))
        yield dropped


@contextmanager
def _batchnorm_by_shards(shards: Sequence[list[int]] | None) -> Iterator[list[str]]:
    """BatchNorm in training sees each shard by itself, as it will on ranks; the list then says what it saw."""
    met: list[str] = []
    whole = F.batch_norm

    def by_shards(X: Tensor, mean: Any = None, var: Any = None, weight: Any = None, bias: Any = None,
                  training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
        places = _places(shards or (), len(X)) if training else []
        met.extend(["shards" if places else "whole"] * training)
        if not places:
            return whole(X, mean, var, weight, bias, training, momentum, eps)
        parts = [whole(X[place], mean, var, weight, bias, training, momentum, eps) for place in places]
        return torch.cat(parts)[torch.cat(places).argsort()]

    with mock.patch.object(F, "batch_norm", by_shards):
        yield met


def _places(shards: Sequence[list[int]], rows: int) -> list[Tensor]:
    """Where the rows of each shard are; of a part or a multiple of the minibatch too, if shards are dealt in turn."""
    n = sum(map(len, shards))
    if rows == n:
        return [torch.tensor(shard) for shard in shards]
    if shards and shards[0][1:2] == [len(shards)] and rows % len(shards) == 0:
        each = max(rows // n, 1) if rows % n == 0 else 1  # such as the words of a sentence
        return [torch.arange(rows).view(-1, each)[r::len(shards)].flatten() for r in range(len(shards))]
    return []


class _Promoted(TorchFunctionMode):
    """A tensor of float32 that meets one of float64 follows: class weights that a script made before, say."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(x, Tensor) and x.dtype == torch.float64 for x in (*args, *kwargs.values())):
            return func(*map(_doubled, args), **{name: _doubled(x) for name, x in kwargs.items()})
        return func(*args, **kwargs)


def _doubled(x: Any) -> Any:
    return x.to(torch.float64) if isinstance(x, Tensor) and x.dtype == torch.float32 else x


@contextmanager
def _group_of_one() -> Iterator[None]:
    """This process is a process group of its own for a while."""
    with mock.patch.dict(os.environ, {"GLOO_SOCKET_IFNAME": loopback()} | os.environ):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _cut_batches(X: Tensor, y: Tensor, num_steps: int, k: int) -> list[tuple[Tensor, Tensor]]:
    """Minibatches in float64, of one size that 2k divides, and 4k if possible, so that halves can be shared too."""
    most = len(y) // num_steps
    size = most // (4 * k) * 4 * k or most // (2 * k) * 2 * k
    if not size:
        raise ValueError(f"{num_steps} minibatches of at least {2 * k} examples are needed, got {len(y)} examples")
    X = X.double() if X.is_floating_point() else X
    y = y.double() if y.is_floating_point() else y
    return [(X[i * size:(i + 1) * size], y[i * size:(i + 1) * size]) for i in range(num_steps)]


def _cut_alike(n: int, k: int) -> list[list[int]]:
    """The examples of k shards, dealt in turn as DistributedSampler does, so that halves of shards make up a half."""
    return [list(range(n))[r::k] for r in range(k)]


def _cut_unequally(n: int, k: int) -> list[list[int]]:
    """Places of k shards of n >= 2k examples, none larger than the one before, the last smaller than the first."""
    spare = n - k
    ends = [r + 1 - (-spare * total // (k * (k + 1) // 2)) for r, total in enumerate(accumulate(range(k, 0, -1)))]
    return [list(range(begin, end)) for begin, end in zip([0, *ends], ends)]


def _sizes(shards: Sequence[list[int]]) -> str:
    """Sizes, as in 8 + 8."""
    return " + ".join(str(len(shard)) for shard in shards)


def _last_line(error: BaseException) -> str:
    """The line of a traceback that says what happened."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith(" ")]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    return shorten(errors[-1] if errors else lines[0] if lines else repr(error), 200)


def _where_they_stand(error: TimeoutError) -> str:
    """The line of the script in which each rank waits."""
    head, *stands = re.split(r"\n\n(?=rank \d+: )", str(error))
    lines = []
    for stand in stands:
        rank = stand.partition(":")[0]
        where = [f"{rank} stands in `{code}`, line {line} of {os.path.basename(name)}"
                 for name, line, _, code in FRAME.findall(stand)
                 if f"{os.sep}torch{os.sep}" not in name and os.path.dirname(name) != HERE]
        left = f"{rank} has left train" if stand.endswith("had returned") else f"{rank}: nobody knows where"
        lines.append(where[0] if where else left)
    return f"{head}: {'; '.join(lines)}"


def _check_networks(make_net: Callable) -> None:
    """Raise ValueError unless each call makes a new network."""
    with torch.random.fork_rng(devices=[]):
        nets = make_net(), make_net()
    first, second = ({p.data_ptr() for p in net.parameters() if p.numel()} for net in nets)
    if first & second:
        raise ValueError("make_net must make a new network at each call: what it gives shares tensors with the one "
                         "before (return copy.deepcopy(net), perhaps)")


def _check_diagnosis(train: Any, make_net: Any, X: Any, y: Any, ranks: Any, num_steps: Any, timeout_s: Any) -> None:
    """Raise ValueError unless `diagnose` can begin with these."""
    if isinstance(make_net, nn.Module):
        raise ValueError("make_net must be a function that makes a network, each time a new one, and this is a network")
    if X.dim() == 0 or y.dim() == 0 or len(X) != len(y):
        raise ValueError(f"X and y need one row per example each, got shapes {tuple(X.shape)} and {tuple(y.shape)}")
    if not hasattr(ranks, "run"):
        check_counts(2, ranks=ranks)
    check_counts(num_steps=num_steps)
    if dist.is_initialized():
        raise ValueError("this process is in a process group; leave it first, as one worker needs one of its own")
