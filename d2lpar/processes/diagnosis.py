"""Is my DDP script right? One worker and k ranks side by side, and in words what differs.

`diagnose` runs a training of the reader's own three times on the same minibatches: as one worker, on ranks with equal
shards, and on ranks with unequal shards. `watch` sees what happens in each, and `symptoms` knows what it means.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn

from d2lpar.base.checks import check_counts, check_functions, check_module, check_tensors, shown
from d2lpar.larger_batches.batchnorm import convert_batchnorm
from d2lpar.processes import RankError, run_ranks
from d2lpar.processes.launch import loopback
from d2lpar.processes.ranks import rank_device
from d2lpar.processes.recording import Record, record_training
from d2lpar.processes.symptoms import Diagnosis, compare, moves, note_batchnorm, same_steps, shards

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
WITH_DROPOUT = (nn.MultiheadAttention, nn.RNNBase)


def diagnose(train: Callable, make_net: Callable, X: Tensor, y: Tensor, ranks: Any = 2, num_steps: int = 3,
             timeout_s: float = 60.0) -> Diagnosis:
    """Compare a training on several ranks with the same training by one worker.

    Each rank calls `train(net, batches)` in a process group, with `net = make_net()` in float64, made after a seed of
    the rank's own, and `batches`, a list of its shards (X, y). One worker does the same in this process, as a group
    of one, with the whole minibatches. `train` wraps the network if it likes, makes its optimizer from `torch.optim`,
    and trains; it may return its losses, one for each step. Dropout is switched off.

    Args:
        X, y: examples, (n, ...) each; they are cut into `num_steps` minibatches.
        ranks: how many, in new processes, or a `RankGroup` that is open already.
        timeout_s: for each time that all ranks train.

    What only unequal shards bring to light is a note, and what fails after the first step is a fault.

    Raises:
        ValueError: for arguments that make no sense, and for a `train` that makes no step.
        Exception: if already the first step fails, as what `train` raises on one worker, and on ranks as a RankError
            or a TimeoutError.
    """
    _check_diagnosis(train, make_net, X, y, ranks, num_steps)
    sample = _sample_of(make_net)
    k = ranks if isinstance(ranks, int) else ranks.world_size
    batches = _cut_batches(X, y, num_steps, k)
    n = len(batches[0][1])
    equal, unequal = [n // k] * k, _cut_unequally(n, k)
    found = Diagnosis(f"{k} ranks and one worker, {num_steps} minibatches of {n} as {shards(equal)} and as "
                      f"{shards(unequal)}")

    def on_ranks(sizes: Sequence[int], synchronised: bool = True) -> list[Record]:
        args = _run_rank, train, make_net, batches, sizes, synchronised
        return (run_ranks(args[0], k, *args[1:], timeout_s=timeout_s) if isinstance(ranks, int)
                else ranks.run(*args, timeout_s=timeout_s))

    def on_unequal_shards() -> str:
        other = Diagnosis(found.about)
        try:
            compare(alone, on_ranks(unequal), unequal, other)
        except (RankError, TimeoutError) as error:
            return f"it fails, {_last_line(error)}"
        found.notes.update(other.notes)
        return "; ".join(f"{name}, {words}" for name, words in other.faults.items())

    try:
        alone, again = (_run_alone(train, make_net, batches, seed) for seed in (0, 1))
        if not alone.steps:
            raise ValueError("train has not made a step by an optimizer of torch.optim")
        _look_at_network(sample, found)
        if not same_steps(alone, again):
            found.faults["random numbers"] = ("two runs of one worker differ, by augmentation or dropout of your own, "
                                              "say; switch them off, or nothing can be compared")
            return found
        if not moves(alone):
            found.faults["other parameters"] = ("no step moves a parameter of the network that train was given: has "
                                                "the optimizer those of another, of a copy perhaps?")
            return found
        compare(alone, on_ranks(equal), equal, found)
        if found.ok and "parameters averaged" not in found.notes and (words := on_unequal_shards()):
            found.notes["unequal shards"] = (f"right on equal shards, but not on {shards(unequal)}. If yours can be "
                                             f"unequal: {words}")
        if found.ok and _has_batchnorm(sample):
            note_batchnorm(alone, on_ranks(equal, synchronised=False), found)
    except Exception as error:
        if num_steps == 1:
            raise
        first = diagnose(train, make_net, X[:n], y[:n], ranks, 1, timeout_s)  # what can be said before it fails
        first.faults["hangs" if isinstance(error, TimeoutError) else "raises"] = (
            f"after the first step, {_last_line(error)}")
        return first
    return found


def _run_rank(rank: int, train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]],
             sizes: Sequence[int], synchronised: bool) -> Record:
    """What a rank does: its own start, its shards, the reader's training."""
    end = sum(sizes[:rank + 1])
    device = rank_device()
    own = [(X[end - sizes[rank]:end].to(device), y[end - sizes[rank]:end].to(device)) for X, y in batches]
    torch.manual_seed(rank)
    net = _without_dropout(make_net().double())
    torch.manual_seed(rank)
    with _as_by_torchrun(rank, len(sizes)):
        return record_training(train, (convert_batchnorm(net) if synchronised else net).to(device), own)


def _run_alone(train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]], seed: int) -> Record:
    """The yardstick: rank 0 of a group of one, in this process, which keeps its random numbers."""
    with _group_of_one(), _as_by_torchrun(0, 1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # as on rank 0
        net = _without_dropout(make_net().double())
        torch.manual_seed(seed)
        return record_training(train, net, [(X.clone(), y.clone()) for X, y in batches])


@contextmanager
def _as_by_torchrun(rank: int, k: int) -> Iterator[None]:
    """What torchrun tells a rank of one machine; to enter the group, and to leave it, is done already."""
    facts = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": k, "LOCAL_WORLD_SIZE": k}
    with (mock.patch.dict(os.environ, {name: str(value) for name, value in facts.items()}),
          mock.patch.object(dist, "init_process_group"), mock.patch.object(dist, "destroy_process_group")):
        yield


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
    """Minibatches in float64, of one size that k divides, at least 2k; examples that are left over stay out."""
    size = len(y) // num_steps // k * k
    if size < 2 * k:
        raise ValueError(f"{num_steps} minibatches of at least {2 * k} examples are needed, got {len(y)} examples")
    X = X.double() if X.is_floating_point() else X
    y = y.double() if y.is_floating_point() else y
    return [(X[i * size:(i + 1) * size], y[i * size:(i + 1) * size]) for i in range(num_steps)]


def _cut_unequally(n: int, k: int) -> list[int]:
    """Sizes of k shards of n >= 2k examples, none larger than the one before, and the last smaller than the first."""
    spare = n - k
    ends = [-(-spare * total // (k * (k + 1) // 2)) for total in accumulate(range(k, 0, -1))]
    return [1 + end - begin for begin, end in zip([0, *ends], ends)]


def _look_at_network(net: nn.Module, found: Diagnosis) -> None:
    """Say what was switched off."""
    if any((isinstance(m, DROPOUTS) and m.p) or (isinstance(m, WITH_DROPOUT) and m.dropout) for m in net.modules()):
        found.notes["dropout"] = ("switched off here, as ranks and one worker draw different masks; in your training, "
                                  "give each rank a seed of its own")


def _without_dropout(net: nn.Module) -> nn.Module:
    """The same network, that drops nothing."""
    for m in net.modules():
        if isinstance(m, DROPOUTS):
            m.p = 0.0
        if isinstance(m, WITH_DROPOUT):
            m.dropout = 0.0
    return net


def _has_batchnorm(net: nn.Module) -> bool:
    """Whether a layer of it normalises over the examples."""
    return any(isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) for m in net.modules())


def _last_line(error: BaseException) -> str:
    """The line of a traceback that says what happened."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith(" ")]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    return shown(errors[-1] if errors else lines[0] if lines else repr(error)).strip("'\"")


def _sample_of(make_net: Callable) -> nn.Module:
    """A network, after a look at whether each call makes a new one; raises ValueError if not."""
    with torch.random.fork_rng(devices=[]):
        nets = make_net(), make_net()
    for net in nets:
        check_module(net)
    first, second = ({p.data_ptr() for p in net.parameters() if p.numel()} for net in nets)
    if first & second:
        raise ValueError("make_net must make a new network at each call: what it gives shares tensors with the one "
                         "before (return copy.deepcopy(net), perhaps)")
    return nets[0]


def _check_diagnosis(train: Any, make_net: Any, X: Any, y: Any, ranks: Any, num_steps: Any) -> None:
    """Raise ValueError unless `diagnose` can begin with these."""
    check_functions(train=train, make_net=make_net)
    check_tensors("a batch", [X, y])
    if X.dim() == 0 or y.dim() == 0 or len(X) != len(y):
        raise ValueError(f"X and y need one row per example each, got shapes {tuple(X.shape)} and {tuple(y.shape)}")
    if not hasattr(ranks, "run"):
        check_counts(2, ranks=ranks)
    check_counts(num_steps=num_steps)
    if dist.is_initialized():
        raise ValueError("this process is in a process group; leave it first, as one worker needs one of its own")
