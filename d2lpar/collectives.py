"""Collective operations: one buffer per device, combined so that every device ends with the same values.

Chapter 2 teaches the naive allreduce, which sends everything to the first device and back. Chapter 3 writes it as
messages, and goes on to a tree, to the ring, and to the form that is fastest where all devices share one memory.
All of them work in place, block until they are done, and give the same bits on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from d2lpar.devices import ALL_CORES, run_on_devices
from d2lpar.messages import address_range, deliver, exchange

BLOCK_BYTES = 2**20  # of a buffer, so that the blocks of a few devices fit into a core's cache


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


def allreduce_naive(data: Sequence[Tensor]) -> None:
    """`allreduce`, message by message: the same bits.

    Taught in: notebooks/03_allreduce.ipynb
    """
    check_buffers(data)
    with cut(data, 1) as whole:
        for rank in range(1, len(data)):
            exchange(whole, [(rank, 0, 0)], add=True)
        for rank in range(1, len(data)):
            exchange(whole, [(0, rank, 0)], add=False)


def allreduce_tree(data: Sequence[Tensor]) -> None:
    """Replace every tensor of `data` by the sum of all, in 2 ceil(log2 k) rounds.

    Taught in: notebooks/03_allreduce.ipynb
    """
    check_buffers(data)
    k = len(data)
    distances = [2**i for i in range((k - 1).bit_length())]
    with cut(data, 1) as whole:
        for d in distances:
            exchange(whole, [(r + d, r, 0) for r in range(0, k - d, 2 * d)], add=True)
        for d in reversed(distances):
            exchange(whole, [(r, r + d, 0) for r in range(0, k - d, 2 * d)], add=False)


def reduce_scatter(data: Sequence[Tensor]) -> None:
    """Leave the sum of all in chunk r of rank r, in k - 1 rounds around a ring.

    The chunks are those of `tensor_split(k)`. The other chunks keep partial sums.
    Source: Patarasuk and Yuan, 2009.
    Taught in: notebooks/03_allreduce.ipynb
    """
    check_buffers(data)
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(k - 1):
            moves = [(r, (r + 1) % k, (r - step - 1) % k) for r in range(k)]
            exchange(chunks, moves, add=True)


def all_gather(data: Sequence[Tensor]) -> None:
    """Copy chunk r of rank r to all others, in k - 1 rounds around a ring.

    Source: Patarasuk and Yuan, 2009.
    Taught in: notebooks/03_allreduce.ipynb
    """
    check_buffers(data)
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(k - 1):
            moves = [(r, (r + 1) % k, (r - step) % k) for r in range(k)]
            exchange(chunks, moves, add=False)


def allreduce_ring(data: Sequence[Tensor]) -> None:
    """Replace every tensor of `data` by the sum of all; no rank sends more than 2 S.

    Taught in: notebooks/03_allreduce.ipynb
    """
    reduce_scatter(data)
    all_gather(data)


def allreduce_blocks(data: Sequence[Tensor]) -> None:
    """`allreduce`, block by block while a block is in cache: the same bits, faster.

    Made for devices that share one memory; one thread per core. (Where numbers are
    NaN so is the sum, but not always with the same bits.)
    Taught in: notebooks/03_allreduce.ipynb
    """
    check_buffers(data)
    length = BLOCK_BYTES // data[0].element_size()
    with cut(data, 1) as whole:
        blocks = list(zip(*(x.split(length) for [x] in whole)))
        workers = min(len(data), ALL_CORES)
        run_on_devices(sum_blocks, [blocks[w::workers] for w in range(workers)])


def sum_blocks(blocks: Sequence[Sequence[Tensor]]) -> None:
    """Allreduce each of `blocks`; a block is a list of pieces, one from each rank.

    Taught in: notebooks/03_allreduce.ipynb
    """
    for pieces in blocks:
        last = len(pieces) - 1
        for rank in range(last):  # the sum is passed along, into a piece just read
            deliver(rank, rank + 1, pieces[rank], pieces[rank + 1], add=True)
        for rank in reversed(range(last)):  # back to those that are still in cache
            deliver(last, rank, pieces[last], pieces[rank], add=False)


def allreduce_flat(
    device_tensors: Sequence[Sequence[Tensor]],
    allreduce: Callable[[Sequence[Tensor]], None] = allreduce_ring,
) -> None:
    """Allreduce lists of tensors, one list per device, as one buffer per device.

    Taught in: notebooks/03_allreduce.ipynb
    """
    check_lists(device_tensors)
    data = [torch.cat([x.reshape(-1) for x in tensors]) for tensors in device_tensors]
    allreduce(data)
    for buffer, tensors in zip(data, device_tensors):
        for x, part in zip(tensors, buffer.split([x.numel() for x in tensors])):
            x.copy_(part.view_as(x))


def sum_in_processes(rank: int, data: Sequence[Tensor]) -> Tensor:
    """The library's allreduce of `data`, one tensor per process: what `rank` ends with.

    Runs in each process of a group; NCCL needs the tensor on a GPU.
    """
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    x = data[rank].to(device, copy=True)
    dist.all_reduce(x)
    return x.cpu()


@contextmanager
def cut(data: Sequence[Tensor], num_chunks: int) -> Iterator[list[tuple[Tensor, ...]]]:
    """For each buffer, flattened, the list of its chunks, of sizes that differ by at most one element.

    The chunks are views. Only a buffer with gaps in memory is copied, and written back at the end of the block.
    """
    flat = [x.contiguous().view(-1) for x in data]
    yield [x.tensor_split(num_chunks) for x in flat]
    for x, copy in zip(data, flat):
        if not x.is_contiguous():
            x.copy_(copy.view_as(x))


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
        if x.layout != torch.strided or x.device.type == "meta":
            raise ValueError(f"entry {rank} is a {x.layout} tensor on {x.device}: a buffer needs all its values in memory")
        if _overlaps_itself(x):
            raise ValueError(f"entry {rank} is an expanded tensor: several of its elements are one place in memory")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"entry {rank} requires grad: call allreduce under torch.no_grad()")
    places = [_place(x) for x in data]
    for b in range(len(data)):
        for a in range(b):
            if data[a].device == data[b].device and np.shares_memory(places[a], places[b]):
                raise ValueError(f"entries {a} and {b} overlap in memory: each device needs a buffer of its own")


def check_lists(device_tensors: Sequence[Sequence[Tensor]]) -> None:
    """Raise a ValueError unless the lists can be reduced entry by entry, and each of them can be one buffer."""
    lengths = [len(tensors) for tensors in device_tensors]
    if not lengths or lengths[0] == 0 or len(set(lengths)) > 1:
        raise ValueError(f"each device needs one list of the same number of tensors, at least 1, got lengths {lengths}")
    for i, replicas in enumerate(zip(*device_tensors)):
        try:
            check_buffers(replicas)
        except ValueError as error:
            raise ValueError(f"tensor {i} of each list: {error}") from None
    check_apart(device_tensors)
    for rank, tensors in enumerate(device_tensors):
        kinds = {(x.dtype, x.device) for x in tensors}
        if len(kinds) > 1:
            raise ValueError(f"the tensors of rank {rank} cannot be one buffer: they are of "
                             + ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds)))


def check_apart(device_tensors: Sequence[Sequence[Tensor]]) -> None:
    """Raise a ValueError if any two of all these tensors overlap in memory."""
    entries = [(*address_range(x), rank, i) for rank, tensors in enumerate(device_tensors) for i, x in enumerate(tensors)]
    near = []
    for first, end, rank, i in sorted(entries):
        near = [other for other in near if other[1] > first]
        for _, _, other_rank, j in near:
            x, y = device_tensors[rank][i], device_tensors[other_rank][j]
            if x.device == y.device and np.shares_memory(_place(x), _place(y)):
                raise ValueError(f"tensor {j} of list {other_rank} and tensor {i} of list {rank} overlap in memory")
        near.append((first, end, rank, i))


def _overlaps_itself(x: Tensor) -> bool:
    """Whether a step in some dimension is no longer than all that the dimensions of smaller steps reach."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride(), x.shape) if size > 1):
        if stride <= reach:
            return x.numel() > 0
        reach += (size - 1) * stride
    return False


def _place(x: Tensor) -> np.ndarray:
    """A NumPy array at the addresses of `x`, never read, so that NumPy can tell exactly whether two tensors overlap."""
    size = x.element_size()
    interface = {"version": 3, "typestr": f"|V{size}", "data": (x.data_ptr(), False), "shape": tuple(x.shape),
                 "strides": tuple(stride * size for stride in x.stride())}
    return np.asarray(SimpleNamespace(__array_interface__=interface))
