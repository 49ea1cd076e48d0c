"""What a rank runs: its device, a ring allreduce written by hand, and a record of what its step sends and when.

`Traffic` and `trace_rank` use PyTorch's own tools: every collective goes through the dispatcher, where
`Traffic` records it, and the profiler knows when a Gloo thread was at work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from d2lpar.checks import why_not_written
from d2lpar.timing import Span


def rank_device() -> torch.device:
    """The device of this rank: its GPU where the ranks talk by NCCL, otherwise the CPU.

    Raises RuntimeError in a process that is not a rank of a group.
    """
    if not dist.is_initialized():
        raise RuntimeError("this process is not a rank: call this in a function that run_ranks or RankGroup.run runs")
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def check_message(x: Tensor, direction: int) -> None:
    """Raise ValueError unless `x` can be sent as it lies in memory, and written, and the direction is 1 or -1."""
    if problem := why_not_written(x):
        raise ValueError(f"x {problem}")
    if not x.is_contiguous():
        raise ValueError(f"x must be contiguous, got strides {x.stride()} for shape {tuple(x.shape)}")
    if direction not in (1, -1):
        raise ValueError(f"a ring runs in direction 1 or -1, got {direction}")


def ring_chunks(rank, step, k, direction=1):
    """Which chunk a rank sends in this step of a ring of k ranks, and which arrives.
    Steps count from 1. In direction -1, chunks go to the left, and the signs change."""
    return (rank - direction * step) % k, (rank - direction * (step + 1)) % k


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
        ours, theirs = (chunks[i] for i in ring_chunks(rank, step, k, direction))
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


COMPUTING = ("forward", "backward", "update")  # names of spans that `trace_rank` gives
COLLECTIVE = re.compile(r"(?:gloo|nccl):(\w+)")  # how the profiler calls what a backend does


class Traffic(TorchDispatchMode):
    """Counts the collectives that this rank takes part in within its `with` block, and their bytes.

    `counts` is by name, such as "allreduce", and `total_bytes` adds up the tensors that each was given first, which for
    many is the output: of an all_gather all parts, of a reduce_scatter the own one. Messages to one rank, by send and
    recv, are counted as well; functional collectives are not seen. `bytes_by_name` has them apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.bytes_by_name: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            name = func.overloadpacket.__name__.strip("_")
            self.counts[name] += 1
            self.bytes_by_name[name] += sum(x.nbytes for x in pytree.tree_leaves(args[0]) if isinstance(x, Tensor))
        return func(*args, **kwargs or {})

    @property
    def total_bytes(self) -> int:
        """What all collectives were given first, together."""
        return self.bytes_by_name.total()


def trace_rank(rank: int, step: Callable[[], object]) -> list[Span]:
    """When this rank was computing and communicating in `step`, which all ranks begin together.

    Computing is what `step` does within `record_function("forward")` or "update", and "backward", which is found by
    itself: from the first gradient to the last one, without the time in which it only waits. Communication goes by the
    name of the collective, such as "all_reduce". On a GPU these are the times at which the CPU queued the work.
    """
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        dist.barrier()
        with record_function("step"):
            step()
    events = [(e.name, e.time_range.start / 1e6, e.time_range.end / 1e6) for e in recorded.events() or []]
    [zero] = [start for name, start, _ in events if name == "step"]
    spans = [Span(rank, name, start, end) for name, start, end in events if name in COMPUTING]
    spans += [Span(rank, found[1], start, end) for name, start, end in events if (found := COLLECTIVE.fullmatch(name))]
    gradients = [(start, end) for name, start, end in events if name.startswith("autograd::engine::evaluate_function")]
    if gradients:
        spans.append(Span(rank, "backward", min(gradients)[0], max(end for _, end in gradients)))
    return sorted((Span(r, what, start - zero, end - zero) for r, what, start, end in spans if start >= zero),
                  key=lambda span: span.start_s)
