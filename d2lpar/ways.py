"""Three ways to share the work of a training step, by data, by channels and by layers: how long each one takes.

One model for all three: every rank does so many operations per second, and a link carries so many bytes per second in
each direction at the same time, from every rank to the next. A backward pass is twice the work of a forward pass, a
number has four bytes, and a message costs nothing but its bytes; what a message itself costs, `d2lpar.cost` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


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


def alone_s(batch, flop, flops_per_s):
    """Seconds of one step on one device; `flop` operations forward for each example."""
    return 3 * batch * flop / flops_per_s  # forward, and twice as much backward


def data_parallel_s(k, shard_s, params_s, overlap=0):
    """Seconds of one step where each of k ranks has a shard, computed in `shard_s`."""
    send_s = 2 * (k - 1) / k * params_s
    backward_s = 2 / 3 * shard_s  # behind which the sending can hide
    return shard_s + send_s - overlap * min(send_s, backward_s)


def tensor_parallel_s(k, work_s, reads_s, overlap=0):
    """Seconds of one step where each of k ranks has a k-th of every layer."""
    send_s = 2 * (k - 1) / k * reads_s
    return work_s / k + send_s - overlap * min(send_s, work_s / k)


def pipeline_s(work_s, busiest_s, crossing_s, widest_s, micro=1):
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
    return Stages(max(flop_of_stages(pieces, cuts)), sum(wide), max(wide, default=0))


def cuts_of(pieces: Sequence[Piece], k: int) -> tuple[int, ...]:
    """The number of pieces before each of the k - 1 cuts of `stages_of`."""
    if k > len(pieces):
        raise ValueError(f"{len(pieces)} pieces cannot be cut into {k} stages")
    return min(combinations(range(1, len(pieces)), k - 1), key=lambda cuts: max(flop_of_stages(pieces, cuts)))


def flop_of_stages(pieces: Sequence[Piece], cuts: Sequence[int]) -> list[float]:
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
