"""Collective operations: one buffer per device, combined so that every device ends with the same values.

Chapter 2 teaches the naive allreduce, which sends everything to the first device and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor


def allreduce(data: Sequence[Tensor]) -> None:
    """Replace every tensor of `data`, one per device, by the sum of all, in place.

    Adds in rank order. Raises ValueError, before anything is changed, if shapes or
    dtypes differ or buffers overlap in memory.
    Taught in: notebooks/02_data_parallelism_from_scratch.ipynb
    """
    check_buffers(data)
    total = data[0]
    for other in data[1:]:
        total.add_(other.to(total.device))
    for other in data[1:]:
        other.copy_(total)


def check_buffers(data: Sequence[Tensor]) -> None:
    """Raise a ValueError that names the offending entries unless `data` can be reduced in place.

    Wanted: at least one tensor, one shape, one dtype, no two buffers that share memory (nor one that shares memory
    with itself, as an expanded tensor does), and none that requires grad unless grad mode is off.
    """
    if len(data) == 0:
        raise ValueError("allreduce needs at least one tensor, got none")
    for name in ("shape", "dtype"):
        values = [getattr(x, name) for x in data]
        for rank, value in enumerate(values):
            if value != values[0]:
                raise ValueError(f"the {name} of entry {rank} is {value}, of entry 0 {values[0]}: all must be equal")
    for rank, x in enumerate(data):
        if any(size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride())):
            raise ValueError(f"entry {rank} is an expanded tensor: several of its elements are one place in memory")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"entry {rank} requires grad: call allreduce under torch.no_grad()")
    places = [_place(x) for x in data]
    for b in range(len(data)):
        for a in range(b):
            if data[a].device == data[b].device and np.shares_memory(places[a], places[b]):
                raise ValueError(f"entries {a} and {b} overlap in memory: each device needs a buffer of its own")


def _place(x: Tensor) -> np.ndarray:
    """A NumPy array at the addresses of `x`, never read, so that NumPy can tell exactly whether two tensors overlap."""
    size = x.element_size()
    interface = {"version": 3, "typestr": f"|V{size}", "data": (x.data_ptr(), False), "shape": tuple(x.shape),
                 "strides": tuple(stride * size for stride in x.stride())}
    return np.asarray(SimpleNamespace(__array_interface__=interface))
