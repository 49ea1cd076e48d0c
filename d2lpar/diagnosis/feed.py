"""Does each rank get its own examples? Iterate over the loaders or samplers of k ranks in one process.

`diagnose` hands each rank its shard, so it does not test the loader that would normally do so. `check_feed` builds the
loaders that k ranks would build, and counts their examples; it needs no process group.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from d2lpar.checks import check_counts
from d2lpar.diagnosis.compare import Diagnosis

FEED_NAMES = ("same examples on all ranks", "different numbers of batches", "repeated examples", "padded",
              "missing examples", "incomplete last minibatch", "not shuffled", "same order in every epoch")
Epoch = list[list[list[Any]]]  # by rank, by batch: what identifies the examples


def check_feed(make_loader: Callable, ks: Sequence[int] = (1, 2, 3), set_epoch: Callable | None = None,
               num_epochs: int = 2, per_machine: int | None = None, allow: Iterable[str] = ()) -> Diagnosis:
    """Go through the loaders of k ranks, and say whether each example comes once per epoch.

    An example is identified by its index if a DataLoader or a sampler provides one, and by its values otherwise. While
    a rank's loader is built and iterated over, `torch.distributed` and torchrun's variables report that rank, and it
    has its own random state.

    Args:
        make_loader: `make_loader(rank, world_size)` returns what that rank iterates over in an epoch: a DataLoader, a
            sampler or batch sampler, or any iterable of batches.
        ks: world sizes; 1 is the single device with which the others are compared.
        set_epoch: `set_epoch(loader, epoch)` does what your loop does before each epoch. By default it calls
            `set_epoch(epoch)` of the loader or of its sampler, if there is one.
        per_machine: how many ranks a machine has, for LOCAL_RANK; by default all are on one.
        allow: names of findings that are intended, and count as notes.

    Raises:
        ValueError: for invalid numbers, and for examples that change from epoch to epoch, as with augmentation.
    """
    check_counts(num_epochs=num_epochs, **{f"ks_{i}": k for i, k in enumerate(ks)})
    runs = {k: _epochs(make_loader, k, set_epoch or _set_epoch, num_epochs, per_machine) for k in dict.fromkeys(ks)}
    everything = set().union(*(_examples(epoch) for epochs in runs.values() for epoch in epochs))
    called = ", and whether your loop calls set_epoch, as check_feed does" * (set_epoch is None)
    found = Diagnosis(f"iterated over the loaders of {', '.join(map(str, runs))} ranks for {num_epochs} epochs, "
                      f"{len(everything):,} examples", allow, [f"how the examples are used{called}"])
    for k, epochs in runs.items():
        check_epochs(k, epochs, everything, found)
    return found


def _examples(epoch: Epoch) -> set:
    """The examples that all ranks see in an epoch."""
    return {key for rank in epoch for batch in rank for key in batch}


def check_epochs(k: int, epochs: Sequence[Epoch], everything: set, found: Diagnosis) -> None:
    """Report what is wrong with the epochs of k ranks, causes before symptoms."""
    first = epochs[0]
    on = f" on {k} ranks" if k > 1 else " on a single device"
    sets = [{key for batch in rank for key in batch} for rank in first]
    if k > 1 and sets[0] and all(one == sets[0] for one in sets):
        found.add("same examples on all ranks", f"every rank goes through the same {len(sets[0]):,} examples{on}",
                  "Give each rank its own part, for example with DistributedSampler")
        return
    lengths = [len(rank) for rank in first]
    if len(set(lengths)) > 1:
        counts = ", ".join(f"{n} on rank {r}" for r, n in enumerate(lengths))
        found.add("different numbers of batches", counts, "The rank with more batches waits until the timeout. "
                  "Drop or repeat examples so that all ranks have the same number")
    together = next((i for i, batches in enumerate(zip_longest(*first, fillvalue=[]))
                     if max(Counter(key for batch in batches for key in batch).values(), default=0) > 1), None)
    seen = Counter(key for rank in first for batch in rank for key in batch)
    extra = sum(seen.values()) - len(seen)
    if extra >= k:
        where = f", some of them within one global batch (batch {together})" if together is not None else ""
        found.add("repeated examples", f"{extra:,} examples appear more than once in an epoch{on}{where}",
                  "Do all ranks shuffle with the same seed, before they take their part?")
    elif extra:
        found.add("padded", f"{_are(extra)} repeated{on}, so that all ranks have the same number",
                  "In an evaluation they would be counted twice", fault=False)
    missing = [len(everything - _examples(epoch)) for epoch in epochs]
    largest = sum(max(map(len, rank), default=0) for rank in first)
    if missing[0] > max(largest - 1, 0):
        never = everything.difference(*map(_examples, epochs))
        found.add("missing examples", f"{missing[0]:,} of {len(everything):,} examples are left out of an epoch{on}"
                  + f", and {len(never):,} appear in none of the {len(epochs)} epochs" * bool(never),
                  "Does each rank take its own part of the same order, and is set_epoch called?")
    elif missing[0]:
        found.add("incomplete last minibatch", f"{_are(missing[0])} left out of each epoch{on}, less than a "
                  "minibatch", fault=False)
    if len(epochs) > 1:
        same = [r for r in range(k) if epochs[0][r] == epochs[1][r] and epochs[0][r]]
        order = [key for batch in first[0] for key in batch]
        if same and order == sorted(order, key=_place):
            found.add("not shuffled", f"the examples come in the order of the data set{on}", fault=False)
        elif same:
            found.add("same order in every epoch",
                      f"rank {same[0]} sees its examples in the same order in the first two epochs{on}",
                      "Call the sampler's set_epoch(epoch) before each epoch")


def _are(n: int) -> str:
    return "1 example is" if n == 1 else f"{n:,} examples are"


def _place(key: Any) -> Any:
    return key if isinstance(key, int) else 0


def _epochs(make_loader: Callable, k: int, set_epoch: Callable, num_epochs: int,
            per_machine: int | None) -> list[Epoch]:
    """What k ranks iterate over, epoch by epoch; each rank keeps its own random state from epoch to epoch."""
    loaders, states = [], []
    for rank in range(k):
        with _as_rank(rank, k, per_machine, None) as state:
            loaders.append(make_loader(rank, k))
        states.append(state)
    epochs = []
    for epoch in range(num_epochs):
        epochs.append([])
        for rank, loader in enumerate(loaders):
            with _as_rank(rank, k, per_machine, states[rank]) as state:
                set_epoch(loader, epoch)
                epochs[-1].append([_keys(batch) for batch in _indices(loader)])
            states[rank] = state
    _check_known(epochs)
    return epochs


def _check_known(epochs: Sequence[Epoch]) -> None:
    """Raise ValueError if examples cannot be recognised, because they change from epoch to epoch."""
    keys = list(map(_examples, epochs))
    if len(keys) > 1 and keys[0] and not keys[0] & keys[1] and not all(isinstance(key, int) for key in keys[0]):
        raise ValueError("no example of the first epoch appears again in the second: they are probably changed at "
                         "random, for example by augmentation. Let make_loader return the sampler, or a loader without "
                         "augmentation")


def _set_epoch(loader: Any, epoch: int) -> None:
    for one in (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        if hasattr(one, "set_epoch"):
            one.set_epoch(epoch)
            return


def _indices(loader: Any) -> Iterable:
    """The batches as indices, where the loader can tell them without loading anything."""
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        return loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    return loader


def _keys(batch: Any) -> list[Any]:
    """What identifies the examples of a batch: indices as they are, tensors by the values of each row."""
    if isinstance(batch, (int, np.integer)):
        return [int(batch)]
    if isinstance(batch, dict):
        batch = next(iter(batch.values()))
    if isinstance(batch, (list, tuple)) and batch and isinstance(batch[0], (Tensor, np.ndarray, list, tuple)):
        batch = batch[0]
    rows = batch.tolist() if isinstance(batch, (Tensor, np.ndarray)) and batch.ndim == 1 and (
        not batch.is_floating_point() if isinstance(batch, Tensor) else batch.dtype.kind in "iu") else batch
    return [int(row) if isinstance(row, (int, np.integer)) else _digest(row) for row in rows]


def _digest(row: Any) -> str:
    is_numeric = isinstance(row, (Tensor, np.ndarray, float))
    data = torch.as_tensor(row).numpy().tobytes() if is_numeric else repr(row).encode()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


@contextmanager
def _as_rank(rank: int, k: int, per_machine: int | None, state: Any) -> Iterator[list]:
    """`torch.distributed` and torchrun's variables name this rank, and its random numbers go on from `state`."""
    local = per_machine or k
    outside = torch.get_rng_state(), random.getstate(), np.random.get_state()
    if state:
        torch.set_rng_state(state[0]), random.setstate(state[1]), np.random.set_state(state[2])
    else:
        torch.manual_seed(1000 + rank), random.seed(1000 + rank), np.random.seed(1000 + rank)
    kept: list = []
    variables = {"RANK": rank, "WORLD_SIZE": k, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": min(local, k)}
    try:
        with (mock.patch.dict(os.environ, {name: str(value) for name, value in variables.items()}),
              mock.patch.object(dist, "get_rank", lambda *_: rank),
              mock.patch.object(dist, "get_world_size", lambda *_: k),
              mock.patch.object(dist, "is_initialized", lambda: True)):
            yield kept
    finally:
        kept += [torch.get_rng_state(), random.getstate(), np.random.get_state()]
        torch.set_rng_state(outside[0]), random.setstate(outside[1]), np.random.set_state(outside[2])
