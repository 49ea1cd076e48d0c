"""What each rank does at what time within one step, measured or predicted: the spans of a timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import ceil

import torch
from torch import Tensor

from d2lpar.devices import run_on_device_0
from d2lpar.models import lenet, lenet_params, loss
from d2lpar.scratch import allreduce, fresh_gradients, get_params, sgd, split_batch
from d2lpar.timing import Span, Stopwatch
from d2lpar.ways import BYTES, Piece, cuts_of, flop_of_stages


def trace_step(run: Callable, X: Tensor, y: Tensor, replicas: Sequence[Sequence[Tensor]],
                devices: Sequence[torch.device], lr: float) -> list[Span]:
    """Take the step of `train_batch` with a stopwatch around each of its parts: forward, backward, allreduce, update.

    `run` computes the shards: `map` one after the other, `run_on_devices` all at once.
    """
    watch, ranks = Stopwatch(devices), range(len(devices))
    X_shards, y_shards = split_batch(X, y, devices)

    def shard_backward(rank: int) -> None:
        with watch(rank, "forward", devices[rank]):
            shard_loss = loss(lenet(X_shards[rank], replicas[rank]), y_shards[rank]).sum()
        with watch(rank, "backward", devices[rank]):
            shard_loss.backward()

    with fresh_gradients(replicas):
        list(run(shard_backward, ranks))
        for copies in zip(*replicas):
            with ExitStack() as everyone:
                for rank in ranks:
                    everyone.enter_context(watch(rank, "allreduce", devices[rank]))
                allreduce([p.grad for p in copies])
        for rank in ranks:
            with watch(rank, "update", devices[rank]):
                sgd(replicas[rank], lr, batch_size=len(X))
    return watch.spans


def trace_typical_step(run: Callable, X: Tensor, y: Tensor, devices: Sequence[torch.device], lr: float = 0.2,
                       repeats: int = 9) -> list[Span]:
    """Take `repeats` steps of LeNet with `trace_step`; the spans of the step of median length.

    With `map` the steps run in the thread of device 0, which has one core if that device is virtual.
    """
    replicas = [get_params(lenet_params(), device) for device in devices]

    def typical() -> list[Span]:
        steps = [trace_step(run, X, y, replicas, devices, lr) for _ in range(repeats)]
        return sorted(steps, key=lambda spans: spans[-1].end_s - spans[0].start_s)[repeats // 2]

    return run_on_device_0(typical) if run is map else typical()


class _Schedule:
    """Spans, each as early as possible: when its ranks or its link are free, and what it waits for has ended."""

    def __init__(self, overlap: bool) -> None:
        self.overlap, self.spans, self.free = overlap, [], {}

    def add(self, what: str, ranks: Sequence[int], seconds: float, after: float = 0.0) -> float:
        """Add a span and return its end. Sending occupies a link and, without overlap, its ranks too."""
        link = [("link", *ranks)] if what == "send" else []
        taken = link if link and self.overlap else [*link, *ranks]
        start = max([after, *(self.free.get(resource, 0.0) for resource in taken)])
        self.free.update(dict.fromkeys(taken, start + seconds))
        self.spans += [Span(rank, what, start, start + seconds) for rank in ranks if seconds > 0]
        return start + seconds


def data_parallel_spans(pieces: Sequence[Piece], k: int, batch: int, flops_per_s: float, bytes_per_s: float,
               overlap: bool = False) -> list[Span]:
    """Data parallelism: what each rank does when. With `overlap`, gradients are sent as soon as a piece has them."""
    plan, everyone, now = _Schedule(overlap), range(k), 0.0
    shard_s = [ceil(batch / k) * piece.flop / flops_per_s for piece in pieces]
    for work_s in shard_s:
        now = plan.add("forward", everyone, work_s, now)
    made = []
    for work_s in reversed(shard_s):
        now = plan.add("backward", everyone, 2 * work_s, now)
        made.append(now)
    for piece, then in zip(reversed(pieces), made):
        plan.add("send", everyone, 2 * (k - 1) / k * BYTES * piece.params / bytes_per_s, then if overlap else now)
    return plan.spans


def tensor_parallel_spans(pieces: Sequence[Piece], k: int, batch: int, flops_per_s: float, bytes_per_s: float,
                  overlap: bool = False) -> list[Span]:
    """Tensor parallelism. With `overlap`, half of the batch is computed while the other half's values are summed."""
    plan, everyone, parts = _Schedule(overlap), range(k), 2 if overlap else 1
    ends = [0.0] * parts
    work_s = [batch / parts * piece.flop / k / flops_per_s for piece in pieces]
    send_s = [(k - 1) / k * BYTES * batch / parts * piece.summed / bytes_per_s for piece in pieces]
    for what, times, places in (("forward", 1, range(len(pieces))), ("backward", 2, range(len(pieces))[::-1])):
        for i in places:
            for part in range(parts):
                made = plan.add(what, everyone, times * work_s[i], ends[part])
                ends[part] = plan.add("send", everyone, send_s[i], made)
    return plan.spans


def pipeline_spans(pieces: Sequence[Piece], k: int, batch: int, flops_per_s: float, bytes_per_s: float,
                micro: int = 1) -> list[Span]:
    """Pipeline parallelism with the stages of `cuts_of` and `micro` micro-batches, one after the other.

    Sending overlaps with the computing of other micro-batches; a single micro-batch has none to overlap with.
    """
    if not 1 <= micro <= batch:
        raise ValueError(f"{batch} examples cannot be cut into {micro} micro-batches")
    plan, cuts = _Schedule(overlap=True), cuts_of(pieces, k)
    work_s = [batch / micro * flop / flops_per_s for flop in flop_of_stages(pieces, cuts)]
    send_s = [BYTES * batch / micro * pieces[cut - 1].outputs / bytes_per_s for cut in cuts]
    ends = [0.0] * micro
    for part in range(micro):
        for rank in range(k):
            ends[part] = plan.add("forward", [rank], work_s[rank], ends[part])
            if rank < k - 1:
                ends[part] = plan.add("send", [rank, rank + 1], send_s[rank], ends[part])
    for part in range(micro):
        for rank in reversed(range(k)):
            ends[part] = plan.add("backward", [rank], 2 * work_s[rank], ends[part])
            if rank > 0:
                ends[part] = plan.add("send", [rank, rank - 1], send_s[rank - 1], ends[part])
    return plan.spans
