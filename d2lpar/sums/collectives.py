"""Collective operations: one buffer per device, combined so that every device ends with the same values.

The naive allreduce sends everything to the first device and back; `d2lpar.one_step.scratch` has it without messages.
Here it is written as messages, and then come a tree, the ring, and the form that is fastest where all devices share
one memory.
All of them work in place, block until they are done (on GPUs, until they are queued), and give the same bits on every
run. An interrupt waits until they are done; the third one does not. A sum of whole numbers that its dtype cannot hold
wraps around, as PyTorch's own does.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.autograd.graph import increment_version

from d2lpar.base.buffers import as_arrays, check_buffers, check_lists, cut
from d2lpar.base.devices import ALL_CORES, run_on_devices
from d2lpar.base.interrupts import uninterrupted
from d2lpar.sums.messages import deliver, exchange

BLOCK_BYTES = 3 * 2**17  # of a buffer: those of a few devices fit into a core's cache, and each is long beside a call


@uninterrupted()  # package only
def allreduce_naive(data):
    """`allreduce`, message by message: the same bits.

    `data` is a list of one tensor per device, of one shape and dtype, in memory of their own.
    """
    check_buffers(data)  # package only
    with cut(data, 1) as whole:
        for rank in range(1, len(data)):
            exchange(whole, [(rank, 0, 0)], add=True)
        for rank in range(1, len(data)):
            exchange(whole, [(0, rank, 0)], add=False)


@uninterrupted()  # package only
def allreduce_tree(data):
    """Replace every tensor of `data` by the sum of all, in 2 ceil(log2 k) rounds.

    `data` is a list of one tensor per device, of one shape and dtype, in memory of their own.
    """
    check_buffers(data)  # package only
    k = len(data)
    distances = [2**i for i in range((k - 1).bit_length())]
    with cut(data, 1) as whole:
        for d in distances:
            exchange(whole, [(r + d, r, 0) for r in range(0, k - d, 2 * d)], add=True)
        for d in reversed(distances):
            exchange(whole, [(r, r + d, 0) for r in range(0, k - d, 2 * d)], add=False)


@uninterrupted()  # package only
def reduce_scatter(data):
    """Leave the sum of all in chunk r of rank r, in k - 1 rounds around a ring.

    `data` is a list of one tensor per device, of one shape and dtype, in memory of their own. The chunks are those of
    `tensor_split(k)`. The other chunks keep partial sums.

    Source: Patarasuk and Yuan, 2009.
    """
    check_buffers(data)  # package only
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(1, k):
            moves = [(r, (r + 1) % k, (r - step) % k) for r in range(k)]
            exchange(chunks, moves, add=True)


@uninterrupted()  # package only
def all_gather(data):
    """Copy chunk r of rank r to all others, in k - 1 rounds around a ring.

    `data` is a list of one tensor per device, of one shape and dtype, in memory of their own.

    Source: Patarasuk and Yuan, 2009.
    """
    check_buffers(data)  # package only
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(k, 2 * k - 1):  # the steps go on counting
            moves = [(r, (r + 1) % k, (r - step) % k) for r in range(k)]
            exchange(chunks, moves, add=False)


@uninterrupted()  # package only
def allreduce_ring(data):
    """Replace every tensor of `data` by the sum of all; no rank sends more than 2 S.

    `data` is a list of one tensor per device, of one shape and dtype, in memory of their own.
    """
    reduce_scatter(data)
    all_gather(data)


@uninterrupted()  # package only
def allreduce_blocks(data):
    """`allreduce`, block by block while a block is in cache: the same bits, faster.

    `data` is a list of one tensor per device, of one shape and dtype, in memory of their own. Made for devices that
    share one memory; one thread per core. (Where numbers are NaN so is the sum, but not always with the same bits.)
    """
    check_buffers(data)  # package only
    length = BLOCK_BYTES // data[0].element_size()
    with cut(data, 1) as whole:
        buffers = as_arrays([x for [x] in whole])
        starts = range(0, len(buffers[0]), length)
        blocks = [[x[i : i + length] for x in buffers] for i in starts]
        workers = min(len(data), ALL_CORES)
        run_on_devices(sum_blocks, [blocks[w::workers] for w in range(workers)])
    increment_version(data)  # autograd does not see what NumPy writes


def sum_blocks(blocks):
    """Allreduce each of `blocks`; a block is a list of pieces, one from each rank."""
    with np.errstate(all="ignore"):  # of infinities NumPy warns, PyTorch does not
        for pieces in blocks:
            others = range(1, len(pieces))
            for rank in others:
                deliver(rank, 0, pieces[rank], pieces[0], add=True)
            for rank in reversed(others):  # those first that were in use last
                deliver(0, rank, pieces[0], pieces[rank], add=False)


@uninterrupted()  # package only
def allreduce_flat(device_tensors, allreduce=allreduce_ring):
    """Allreduce lists of tensors, one list per device, as one buffer per device.

    Raises:
        ValueError: if the lists differ in length, or one cannot be one buffer.
    """
    check_lists(device_tensors)  # package only
    data = [torch.cat([x.reshape(-1) for x in tensors]) for tensors in device_tensors]
    allreduce(data)
    for buffer, tensors in zip(data, device_tensors):
        for x, part in zip(tensors, buffer.split([x.numel() for x in tensors])):
            x.copy_(part.view_as(x))
