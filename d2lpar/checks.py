"""Checks that many modules need: a mistake that would be silent raises a one-line error that names it.

Python's and PyTorch's own errors cover everything else, and a check that only one module needs is in that module.
The second half is about buffers, the tensors that a collective reads and overwrites: which tensors may be used, and how
they are cut into chunks. (A module's registered buffers, such as BatchNorm's running statistics, are something else.)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

OLDEST_TORCH = 2, 8  # pyproject.toml and book/setup.md say it too


def _refuse_old_torch(version: str) -> None:
    """Raise ImportError if this version of PyTorch is older than the oldest one that was tested.

    Only its first two numbers count: 2.8.0+cpu and NVIDIA's 2.8.0a0+5228986 are not too old.
    """
    if tuple(map(int, version.split(".")[:2])) < OLDEST_TORCH:
        raise ImportError(f"d2lpar needs PyTorch {'.'.join(map(str, OLDEST_TORCH))} or newer, and this is PyTorch "
                          f"{version}: upgrade it with `pip install --upgrade torch`, or use an environment "
                          "with a newer version")


_refuse_old_torch(torch.__version__)  # at once, before a module that needs something newer fails


def check_counts(least: int = 1, /, **values: Any) -> None:
    """Raise ValueError unless each of `values`, by name, is a whole number of at least `least`; 2.0 is not one, as in
    `range`."""
    for name, value in values.items():
        try:
            is_count = operator.index(value) >= least
        except TypeError:
            is_count = False
        if not is_count:
            raise ValueError(f"{_words(name)} must be a whole number of at least {least}, got {value}")


def check_labels(X: Tensor, y: Tensor) -> None:
    """Raise ValueError unless y has one label for each example of X, and no further dimension to broadcast."""
    if y.shape != X.shape[:1]:
        raise ValueError(f"X needs one row and y one label per example, got shapes {tuple(X.shape)} and "
                         f"{tuple(y.shape)}")


def check_lr(lr: float) -> None:
    """Raise ValueError unless `lr` is a finite number that is not negative."""
    if not 0 <= lr < math.inf:
        raise ValueError(f"the learning rate must be a finite number of at least 0, got {lr}")


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number that a float can hold, and not a boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def shown(value: Any) -> str:
    """`value` as text for a message, on one line and not too long."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _words(name: str) -> str:
    """An argument's name unchanged, except that a name like `the_learning_rate` becomes words."""
    return name.replace("_", " ") if name.startswith(("the_", "a_")) else name


def check_buffers(data: Sequence[Tensor]) -> None:
    """Raise a ValueError that names the offending entries unless `data` can be reduced in place.

    Required: at least one tensor, one shape, one dtype, and separate memory for every element of every buffer.
    """
    if len(data) == 0:
        raise ValueError("a collective needs at least one tensor, got none")
    for rank, x in enumerate(data):
        if not isinstance(x, Tensor):
            raise ValueError(f"entry {rank} is {shown(x)}, not a tensor. A gradient is None until backward() "
                             "reaches it")
        if problem := why_not_written(x):
            raise ValueError(f"entry {rank} {problem}")
        for name in ("shape", "dtype"):
            if (value := getattr(x, name)) != (first := getattr(data[0], name)):
                raise ValueError(f"the {name} of entry {rank} is {value}, but entry 0 has {first}: all must be equal")
    for a, b in overlaps(data):
        raise ValueError(f"entries {a} and {b} overlap in memory: each device needs a buffer of its own")


def check_lists(device_tensors: Sequence[Sequence[Tensor]]) -> None:
    """Raise a ValueError unless the lists can be reduced entry by entry, and each list fits into one buffer."""
    lengths = [len(tensors) for tensors in device_tensors]
    if not lengths or lengths[0] == 0 or len(set(lengths)) > 1:
        raise ValueError(f"each device needs a list of the same number of tensors, at least 1, got lengths {lengths}")
    for i, replicas in enumerate(zip(*device_tensors)):
        try:
            check_buffers(replicas)
        except ValueError as error:
            raise ValueError(f"tensor {i} of each list: {error}") from None
    for pair in overlaps([x for tensors in device_tensors for x in tensors]):
        (a, i), (b, j) = (divmod(place, lengths[0]) for place in pair)
        raise ValueError(f"tensor {i} of list {a} and tensor {j} of list {b} overlap in memory")
    for rank, tensors in enumerate(device_tensors):
        if len(dtypes := {x.dtype for x in tensors}) > 1:  # or some would be rounded
            raise ValueError(f"the tensors of rank {rank} cannot share one buffer: their dtypes are "
                             f"{sorted(map(str, dtypes))}")


def overlaps(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    """The sorted index pairs (i, j), i < j, of all `tensors` whose ranges from first to last byte overlap."""
    ranges = [(x.data_ptr(), x.data_ptr() + _extent_bytes(x)) for x in tensors]
    found, near = [], []  # near: tensors that end after the current one begins
    for b in sorted(range(len(tensors)), key=ranges.__getitem__):
        near = [a for a in near if ranges[a][1] > ranges[b][0]]
        found += [(min(a, b), max(a, b)) for a in near if tensors[a].device == tensors[b].device]
        near += [b] if tensors[b].numel() else []
    return sorted(found)


@contextmanager
def cut(data: Sequence[Tensor], num_chunks: int) -> Generator[list[tuple[Tensor, ...]]]:
    """For each buffer, flattened, the list of its chunks, of sizes that differ by at most one element.

    The chunks are views. Only a non-contiguous buffer is copied, and it is written back at the end of the block.
    """
    flat = [x.contiguous().view(-1) for x in data]
    yield [x.tensor_split(num_chunks) for x in flat]
    for x, copy in zip(data, flat):
        if not x.is_contiguous():
            x.copy_(copy.view_as(x))


def as_arrays(tensors: Sequence[Tensor]) -> list[np.ndarray] | list[Tensor]:
    """NumPy arrays in the same memory if NumPy can add all of `tensors` fast, otherwise the tensors themselves.

    NumPy cannot reach a GPU, has neither bfloat16 nor lazily conjugated views, and adds float16 values one by one.
    Autograd does not notice what NumPy writes unless `torch.autograd.graph.increment_version` tells it.
    """
    if any(x.dtype == torch.float16 for x in tensors):
        return list(tensors)
    try:
        return [x.detach().numpy() for x in tensors]
    except (TypeError, RuntimeError):  # no such dtype; or a lazily conjugated view
        return list(tensors)


def why_not_written(x: Tensor) -> str:
    """Say why `x` cannot be summed in place, as the end of a sentence; "" if it can."""
    if x.dtype == torch.bool:
        return "is boolean and cannot be summed"
    if x.numel() * x.element_size() > _extent_bytes(x):
        return "is an expanded tensor: several of its elements share one memory location"
    if x.requires_grad and torch.is_grad_enabled():
        return "requires grad: reduce it under torch.no_grad()"
    return ""


def _extent_bytes(x: Tensor) -> int:
    """The number of bytes from the first byte of `x` to its last."""
    numel = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride())) if x.numel() else 0
    return numel * x.element_size()
