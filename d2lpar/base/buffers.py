"""Buffers, the tensors that a collective reads and overwrites: which may be used, and how they are cut into chunks.

A module's registered buffers, such as the running statistics of BatchNorm, are another thing with the same name.
The ring cuts buffers into chunks; every collective checks them first, so that what it refuses is as it was.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from d2lpar.base.checks import check_counts, check_list, check_tensors, shown


def check_buffers(data: Sequence[Tensor]) -> None:
    """Raise a ValueError that names the offending entries unless `data` can be reduced in place.

    Wanted: at least one tensor, one shape, one dtype of which there are sums, no two buffers that share memory (nor
    one that shares memory with itself, as an expanded tensor does), and none that autograd or inference mode forbids
    to write.
    """
    check_list("data", data)
    if len(data) == 0:
        raise ValueError("a collective needs at least one tensor, got none")
    for rank, x in enumerate(data):
        if problem := why_not_written(x):
            raise ValueError(f"entry {rank} {problem}")
        for name in ("shape", "dtype"):
            if (value := getattr(x, name)) != (first := getattr(data[0], name)):
                raise ValueError(f"the {name} of entry {rank} is {value}, of entry 0 {first}: all must be equal")
    for a, b in overlaps(data):
        raise ValueError(f"entries {a} and {b} overlap in memory: each device needs a buffer of its own")


def check_lists(device_tensors: Sequence[Sequence[Tensor]]) -> None:
    """Raise a ValueError unless the lists can be reduced entry by entry, and each of them can be one buffer."""
    check_list("device_tensors", device_tensors)
    for rank, tensors in enumerate(device_tensors):
        check_list(f"what device {rank} has", tensors)
    lengths = [len(tensors) for tensors in device_tensors]
    if not lengths or lengths[0] == 0 or len(set(lengths)) > 1:
        raise ValueError(f"each device needs one list of the same number of tensors, at least 1, got lengths {lengths}")
    for i, replicas in enumerate(zip(*device_tensors)):
        try:
            check_buffers(replicas)
        except ValueError as error:
            raise ValueError(f"tensor {i} of each list: {error}") from None
    for pair in overlaps([x for tensors in device_tensors for x in tensors]):
        (a, i), (b, j) = (divmod(place, lengths[0]) for place in pair)
        raise ValueError(f"tensor {i} of list {a} and tensor {j} of list {b} overlap in memory")
    for rank, tensors in enumerate(device_tensors):
        kinds = {(x.dtype, x.device) for x in tensors}
        if len(kinds) > 1:
            raise ValueError(f"the tensors of rank {rank} cannot be one buffer: they are of "
                             + ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds)))


def overlaps(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    """The places (i, j), i < j, sorted, of every two of `tensors` that have an element in common.

    Exact: two views of one storage need not have one.
    """
    check_tensors("tensors", tensors)
    starts = [x.data_ptr() for x in tensors]
    ends = [start + _extent_bytes(x) for start, x in zip(starts, tensors)]
    found, near = [], []  # near: those whose addresses reach beyond the current one's first
    for b in sorted(range(len(tensors)), key=starts.__getitem__):
        near = [a for a in near if ends[a] > starts[b]]
        for a in near:
            if tensors[a].device == tensors[b].device and np.shares_memory(_place(tensors[a]), _place(tensors[b])):
                found.append((min(a, b), max(a, b)))
        near.append(b)
    return sorted(found)


@contextmanager
def cut(data: Sequence[Tensor], num_chunks: int) -> Generator[list[tuple[Tensor, ...]]]:
    """For each buffer, flattened, the list of its chunks, of sizes that differ by at most one element.

    The chunks are views. Only a buffer that is not contiguous is copied, and written back at the end of the block.
    """
    check_tensors("data", data)
    check_counts(num_chunks=num_chunks)
    flat = [x.contiguous().view(-1) for x in data]
    yield [x.tensor_split(num_chunks) for x in flat]
    for x, copy in zip(data, flat):
        if not x.is_contiguous():
            x.copy_(copy.view_as(x))


def as_arrays(tensors: Sequence[Tensor]) -> list[np.ndarray] | list[Tensor]:
    """NumPy arrays in the same memory, if NumPy can add all of `tensors` fast; otherwise the tensors themselves.

    It cannot reach a GPU, knows no bfloat16 and no views that are conjugated when they are read, and adds float16 one
    by one. What NumPy writes autograd does not notice, unless `torch.autograd.graph.increment_version` tells it.
    """
    check_tensors("tensors", tensors)
    if any(x.dtype == torch.float16 for x in tensors):
        return list(tensors)
    try:
        return [x.detach().numpy() for x in tensors]
    except (TypeError, RuntimeError):  # has no such numbers; must not read them as they are
        return list(tensors)


def why_not_written(x: Tensor) -> str:
    """What forbids to write `x` in place, as the end of a sentence; "" if nothing does."""
    if not isinstance(x, Tensor):
        return f"is no tensor but {shown(x)}"
    if x.layout != torch.strided or x.device.type == "meta":
        return f"is a {x.layout} tensor on {x.device}: a buffer needs all its values in memory"
    if x.dtype == torch.bool:
        return "holds truth values, which have no sum"
    if not _has_sums(x.dtype):
        return f"holds {x.dtype}, of which there are no sums"
    if _overlaps_itself(x):
        return "is an expanded tensor: several of its elements are one place in memory"
    if x.requires_grad and torch.is_grad_enabled():
        return "requires grad: reduce it under torch.no_grad()"
    if x.is_inference() and not torch.is_inference_mode_enabled():
        return "was made in inference mode: outside of it nothing may write into it"
    return ""


@cache
def _has_sums(dtype: torch.dtype) -> bool:
    try:
        torch.ones(1, dtype=dtype).add_(1)
    except RuntimeError:  # is not implemented
        return False
    return True


def _overlaps_itself(x: Tensor) -> bool:
    """Whether a step in some dimension is no longer than all that the dimensions of smaller steps reach."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride(), x.shape) if size > 1):
        if stride <= reach:
            return x.numel() > 0
        reach += (size - 1) * stride
    return False


def _extent_bytes(x: Tensor) -> int:
    """From the first byte of `x` to behind its last."""
    numel = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride())) if x.numel() else 0
    return numel * x.element_size()


def _place(x: Tensor) -> np.ndarray:
    """A NumPy array at the addresses of `x`, never read, so that NumPy can tell exactly whether two tensors overlap."""
    size = x.element_size()
    interface = {"version": 3, "typestr": f"|V{size}", "data": (x.data_ptr(), False), "shape": tuple(x.shape),
                 "strides": tuple(stride * size for stride in x.stride())}
    return np.asarray(SimpleNamespace(__array_interface__=interface))
