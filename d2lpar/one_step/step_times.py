"""Three ways to share the work of a training step, by data, by channels and by layers: how long each one takes.

One model for all three: every rank does so many operations per second, and a link carries so many bytes per second in
each direction at the same time, from every rank to the next. A backward pass is twice the work of a forward pass, a
number has four bytes, and a message costs nothing but its bytes; what a message itself costs, `d2lpar.sums.cost` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from d2lpar.base.door import taught
from d2lpar.base.timing import Span


class Piece(NamedTuple):
    """A part of a network that stays whole when it is cut by layers: what it does and puts out for one example."""

    flop: float  # floating-point operations of the forward pass
    params: int  # numbers in its parameters
    reads: int  # numbers that its layers with weights read, those of one input once
    outputs: int  # numbers that it hands to the next piece


class Stages(NamedTuple):
    """A network cut by layers: what decides how fast its stages can follow each other, for one example."""

    busiest: float  # operations of the busiest stage
    crossing: int  # numbers that cross all cuts together
    widest: int  # numbers that cross the widest cut


@taught()
def alone_s(batch, flop, flops_per_s):
    """Seconds of one step on one device; `flop` operations forward for each example."""
    return 3 * batch * flop / flops_per_s  # forward, and twice as much backward


@taught()
def by_data_s(k, shard_s, params_s, overlap=0):
    """Seconds of one step where each of k ranks has a shard, computed in `shard_s`."""
    send_s = 2 * (k - 1) / k * params_s
    backward_s = 2 / 3 * shard_s  # behind which the sending can hide
    return shard_s + send_s - overlap * min(send_s, backward_s)


@taught()
def by_channels_s(k, work_s, reads_s, overlap=0):
    """Seconds of one step where each of k ranks has a k-th of every layer."""
    send_s = 2 * (k - 1) / k * reads_s
    return work_s / k + send_s - overlap * min(send_s, work_s / k)


@taught()
def by_layers_s(work_s, busiest_s, crossing_s, widest_s, micro=1):
    """Seconds of one step where each rank has some layers, in `micro` micro-batches."""
    first_s = work_s + 2 * crossing_s  # through all stages and cuts, and back
    next_s = max(busiest_s / 3, widest_s) + max(2 / 3 * busiest_s, widest_s)
    return (first_s + (micro - 1) * next_s) / micro


def stages_of(pieces: Sequence[Piece], k: int) -> Stages:
    """The cut of the pieces into `k` stages, in their order, whose busiest stage has least to do; it asks for no link.

    Raises ValueError if there are fewer pieces than stages.
    """
    cuts = cuts_of(pieces, k)
    wide = [pieces[cut - 1].outputs for cut in cuts]
    return Stages(max(_flop_of_stages(pieces, cuts)), sum(wide), max(wide, default=0))


def cuts_of(pieces: Sequence[Piece], k: int) -> tuple[int, ...]:
    """The number of pieces before each of the k - 1 cuts of `stages_of`."""
    if k > len(pieces):
        raise ValueError(f"{len(pieces)} pieces cannot be cut into {k} stages")
    return min(combinations(range(1, len(pieces)), k - 1), key=lambda cuts: max(_flop_of_stages(pieces, cuts)))


def _flop_of_stages(pieces: Sequence[Piece], cuts: Sequence[int]) -> list[float]:
    """The operations of each stage, for one example, where so many pieces stand before each cut."""
    bounds = [0, *cuts, len(pieces)]
    return [sum(piece.flop for piece in pieces[a:b]) for a, b in zip(bounds, bounds[1:])]


def pieces_of(parts: Sequence[nn.Module], X: Tensor) -> list[Piece]:
    """Counts for each part of a network, the parts called in turn on the examples X, on the CPU.

    X itself is not counted among what is read, as every rank can have it; the loss reads what the last part puts out.
    """
    pieces, known = [], [X]  # kept, so that no later tensor gets the identity of one of them
    for part in parts:
        before = len(known)

        def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            known.extend(x for x in inputs if not any(x is other for other in known))

        hooks = [layer.register_forward_pre_hook(note) for layer in part.modules()
                 if isinstance(layer, nn.Conv2d | nn.Linear)]
        try:
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                X = part(X)
        finally:
            for hook in hooks:
                hook.remove()
        pieces.append(Piece(counter.get_total_flops() / len(X), sum(p.numel() for p in part.parameters()),
                            sum(x[0].numel() for x in known[before:]), X[0].numel()))
    pieces[-1] = pieces[-1]._replace(reads=pieces[-1].reads + pieces[-1].outputs)
    return pieces


class _Schedule:
    """Spans, each as early as its ranks, or its link, and what it waits for let it be."""

    def __init__(self, overlap: bool) -> None:
        self.overlap, self.spans, self.free = overlap, [], {}

    def add(self, what: str, ranks: Sequence[int], seconds: float, after: float = 0.0) -> float:
        """The time when this ends; sending takes a link, and without overlap its ranks too."""
        link = [("link", *ranks)] if what == "send" else []
        taken = link if link and self.overlap else [*link, *ranks]
        start = max([after, *(self.free.get(resource, 0.0) for resource in taken)])
        self.free.update(dict.fromkeys(taken, start + seconds))
        self.spans += [Span(rank, what, start, start + seconds) for rank in ranks if seconds > 0]
        return start + seconds


def data_spans(pieces: Sequence[Piece], k: int, batch: int, flops_per_s: float, bytes_per_s: float,
               overlap: bool = False) -> list[Span]:
    """What each rank does when, by data; with `overlap` the gradients of a piece leave as soon as they are made."""
    plan, everyone, now = _Schedule(overlap), range(k), 0.0
    shard_s = [ceil(batch / k) * piece.flop / flops_per_s for piece in pieces]
    for work_s in shard_s:
        now = plan.add("forward", everyone, work_s, now)
    made = []
    for work_s in reversed(shard_s):
        now = plan.add("backward", everyone, 2 * work_s, now)
        made.append(now)
    for piece, then in zip(reversed(pieces), made):
        plan.add("send", everyone, 2 * (k - 1) / k * 4 * piece.params / bytes_per_s, then if overlap else now)
    return plan.spans


def channel_spans(pieces: Sequence[Piece], k: int, batch: int, flops_per_s: float, bytes_per_s: float,
                  overlap: bool = False) -> list[Span]:
    """The same by channels; with `overlap` one half of the batch is computed while what the other has made is sent."""
    plan, everyone, parts = _Schedule(overlap), range(k), 2 if overlap else 1
    ends = [0.0] * parts
    work_s = [batch / parts * piece.flop / k / flops_per_s for piece in pieces]
    send_s = [(k - 1) / k * 4 * batch / parts * piece.reads / bytes_per_s for piece in pieces]
    for i in range(len(pieces)):
        for part in range(parts):
            sent = plan.add("send", everyone, send_s[i], ends[part])
            ends[part] = plan.add("forward", everyone, work_s[i], sent)
    for i in reversed(range(len(pieces))):
        for part in range(parts):
            made = plan.add("backward", everyone, 2 * work_s[i], ends[part])
            ends[part] = plan.add("send", everyone, send_s[i], made)
    return plan.spans


def layer_spans(pieces: Sequence[Piece], k: int, batch: int, flops_per_s: float, bytes_per_s: float,
                micro: int = 1) -> list[Span]:
    """The same by layers, cut as `cuts_of` says, in `micro` micro-batches that follow each other through the ranks.

    Sending hides behind the computing of other micro-batches: one alone has none to hide behind.
    """
    if not 1 <= micro <= batch:
        raise ValueError(f"{batch} examples cannot make {micro} micro-batches")
    plan, cuts = _Schedule(overlap=True), cuts_of(pieces, k)
    work_s = [batch / micro * flop / flops_per_s for flop in _flop_of_stages(pieces, cuts)]
    send_s = [4 * batch / micro * pieces[cut - 1].outputs / bytes_per_s for cut in cuts]
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
