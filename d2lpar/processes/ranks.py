"""What a rank runs: its device, and an allreduce of its own."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from d2lpar.base.buffers import why_not_written


def rank_device() -> torch.device:
    """The device of this rank: its GPU where the ranks talk by NCCL, otherwise the CPU.

    Raises RuntimeError in a process that is no rank of a group.
    """
    if not dist.is_initialized():
        raise RuntimeError("this process is no rank: call this in a function that run_ranks or RankGroup.run runs")
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def check_message(x: Tensor, direction: int) -> None:
    """Raise ValueError unless `x` can be sent as it lies in memory, and written, and the direction is 1 or -1."""
    if problem := why_not_written(x):
        raise ValueError(f"x {problem}")
    if not x.is_contiguous():
        raise ValueError(f"x must be contiguous, got strides {x.stride()} for shape {tuple(x.shape)}")
    if direction not in (1, -1):
        raise ValueError(f"a ring runs in direction 1 or -1, got {direction}")


def ring_allreduce(x, direction=1):
    """Put the sum over all ranks into every rank's `x`, in place, by a ring.
    Every rank calls it, with tensors of one shape and dtype.

    The bits are those of `allreduce_ring`; direction -1 sends to the rank before, and gives others. Blocks until the
    sum is there.

    Raises:
        ValueError: if `x` cannot be sent as it lies in memory, or written.
    """
    check_message(x, direction)  # package only
    k, rank = dist.get_world_size(), dist.get_rank()
    chunks = x.view(-1).tensor_split(k)
    for step in range(1, 2 * k - 1):
        ours = chunks[(rank - direction * step) % k]
        theirs = chunks[(rank - direction * (step + 1)) % k]
        arrived = torch.empty_like(theirs)
        for message in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, ours, (rank + direction) % k),
            dist.P2POp(dist.irecv, arrived, (rank - direction) % k),
        ]):
            message.wait()
        if step < k:
            theirs.add_(arrived)  # reduce-scatter: sums grow as they go round
        else:
            theirs.copy_(arrived)  # all-gather: they are whole
