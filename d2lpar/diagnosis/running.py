"""Runs a user's training as a single device does, and as a rank does: in float64, without dropout, on the CPU."""

from __future__ import annotations

import inspect
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: what it is at import is its functions' default
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from d2lpar._rank import loopback
from d2lpar.diagnosis.cuda import cuda_on_the_cpu
from d2lpar.diagnosis.recording import Record, record_training
from d2lpar.ranks import rank_device

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
WITH_DROPOUT = (nn.MultiheadAttention, nn.RNNBase)


class Seen(NamedTuple):
    """A run, and what had to be done for it."""

    record: Record
    dropout: bool  # it was switched off
    cuda: frozenset[str]  # what was asked for and done by the CPU
    seeds: tuple[int, ...]  # what the training gave to torch.manual_seed
    generators: tuple[int, ...]  # and to generators of its own


class Alone(NamedTuple):
    """A run on a single device."""

    seen: Seen
    batchnorm: bool  # it saw shards, or what could not be cut into shards as on ranks
    like_ranks: bool  # it saw shards only
    several: bool  # it saw several rows for each example
    promoted: bool  # float32 that met float64 followed

    @property
    def record(self) -> Record:
        """What was seen."""
        return self.seen.record


def run_alone(train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]],
              shards: Sequence[list[int]]) -> tuple[Callable[..., Alone], Alone]:
    """The reference: rank 0 of a group of one, in this process, which keeps its random numbers.

    Gives a function for more such runs, and the first; BatchNorm sees the examples of each shard by themselves.
    """
    def run(seed: int = 0, shards: Sequence[list[int]] | None = shards, promoted: bool = False,
            tiled: bool = False, generators: int = 0) -> Alone:
        own = [(X.clone(), y.clone()) for X, y in batches]
        with group_of_one(), torch.random.fork_rng(devices=[]), _batchnorm_by_shards(shards, tiled) as met:
            seen = _train_as(0, 1, train, make_net, own, promoted, seed, generators)
        return Alone(seen, bool(met), "whole" not in met, "several" in met, promoted)

    try:
        return run, run()
    except RuntimeError as error:
        if not re.search(r"dtype|scalar type|same type", str(error)):
            raise
    return partial(run, promoted=True), run(promoted=True)


def run_rank(rank: int, train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]],
             shards: Sequence[list[int]], promoted: bool, crumbs: str = "") -> Seen:
    """What a rank does: its own start, its shards, the user's training. `crumbs` is a folder for the last lines."""
    device = rank_device()
    own = [(X[shards[rank]].to(device), y[shards[rank]].to(device)) for X, y in batches]
    last_line = Path(crumbs, str(rank)) if crumbs else None
    return _train_as(rank, len(shards), train, make_net, own, promoted, crumbs=last_line)


def _train_as(rank: int, k: int, train: Callable, make_net: Callable, batches: Sequence[tuple[Tensor, Tensor]],
              promoted: bool, other_seed: int = 0, other_generators: int = 0, crumbs: Path | None = None) -> Seen:
    """Train as a rank of torchrun would, in float64 and without dropout.

    With another seed, the training draws different random numbers, even if it sets a seed itself or has generators
    of its own; the network starts the same.
    """
    manual_seed, seeds = torch.manual_seed, []

    def seeded(seed: int) -> Any:
        seeds.append(int(seed))
        return manual_seed(int(seed) + other_seed)

    with (_as_by_torchrun(rank, k), _without_dropout() as dropped, cuda_on_the_cpu(rank, k) as asked,
          _Promoted() if promoted else nullcontext(), _generators(other_generators) as generators):
        torch.manual_seed(rank)
        net = _prepare(make_net(), dropped).to(batches[0][0].device)
        with mock.patch.object(torch, "manual_seed", seeded):
            torch.manual_seed(rank)
            seeds.clear()
            generators.clear()
            record = record_training(train, net, batches, crumbs)
    return Seen(record, bool(dropped), frozenset(asked), tuple(seeds), tuple(generators))


@contextmanager
def _generators(more: int) -> Iterator[list[int]]:
    """The list holds the seeds that the training gives to its own generators; `more` is added to each."""
    given: list[int] = []

    class Generator(torch.Generator):
        def manual_seed(self, seed: int) -> Any:
            given.append(int(seed))
            return super().manual_seed(int(seed) + more)

    def seeded(make: Callable) -> Callable:
        def made(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(seed, (int, np.integer)):
                given.append(int(seed))
                seed = int(seed) + more
            return make(seed, *args, **kwargs)

        return made

    with (mock.patch.object(torch, "Generator", Generator), mock.patch.object(random, "seed", seeded(random.seed)),
          mock.patch.object(np.random, "seed", seeded(np.random.seed)),
          mock.patch.object(np.random, "default_rng", seeded(np.random.default_rng)),
          mock.patch.object(np.random, "RandomState", seeded(np.random.RandomState))):
        yield given


def nothing(rank: int, *loaded: Callable) -> None:
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
    """The function does nothing, even if it was imported by name."""
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


# BatchNorm


@contextmanager
def _batchnorm_by_shards(shards: Sequence[list[int]] | None, tiled: bool = False) -> Iterator[list[str]]:
    """BatchNorm in training sees each shard by itself, as it will on ranks; the list then says what it saw.

    Where it sees several rows for each example, these follow one another, or with `tiled` the whole minibatch comes
    several times.
    """
    met: list[str] = []
    inside: list[bool] = []  # under a function mode, PyTorch's own calls the patched one again
    whole = F.batch_norm

    def by_shards(X: Tensor, mean: Any = None, var: Any = None, weight: Any = None, bias: Any = None,
                  training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
        if inside:
            return whole(X, mean, var, weight, bias, training, momentum, eps)
        places = _places(shards or (), len(X), tiled) if training else []
        met.extend(["shards" if places else "whole"] * training)
        met.extend(["several"] * (training and len(X) > sum(map(len, shards or ()))))
        inside.append(True)
        try:
            if not places:
                return whole(X, mean, var, weight, bias, training, momentum, eps)
            parts = [whole(X[place], mean, var, weight, bias, training, momentum, eps) for place in places]
        finally:
            inside.pop()
        return torch.cat(parts)[torch.cat(places).argsort()]

    with mock.patch.object(F, "batch_norm", by_shards):
        yield met


def _places(shards: Sequence[list[int]], rows: int, tiled: bool = False) -> list[Tensor]:
    """Where the rows of each shard are; of a part or a multiple of the minibatch too, if shards are dealt in turn."""
    n = sum(map(len, shards))
    if rows == n:
        return [torch.tensor(shard) for shard in shards]
    if tiled and shards and rows % n == 0:
        return [torch.cat([torch.tensor(shard) + i * n for i in range(rows // n)]) for shard in shards]
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
def group_of_one() -> Iterator[None]:
    """This process is a process group of its own for a while."""
    with mock.patch.dict(os.environ, {"GLOO_SOCKET_IFNAME": loopback()} | os.environ):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
