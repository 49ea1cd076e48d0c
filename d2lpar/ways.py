"""Data, tensor and pipeline parallelism: how long a training step takes with each of them.

One model for all three: every rank computes at the same rate, and from every rank to the next a link carries the same
number of bytes per second in each direction at the same time. A backward pass is twice the work of a forward pass, a
value has four bytes, and a message costs nothing but its bytes; `d2lpar.cost` adds the latency of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


class Piece(NamedTuple):
    """A part of a network that a pipeline does not split: its work, parameters and activations for one example."""

    flop: float  # floating-point operations of the forward pass
    params: int  # values in its parameters
    reads: int  # activations that its layers with weights read; an input that two layers read counts once
    outputs: int  # activations that it sends to the next piece


class Stages(NamedTuple):
    """The stages of a pipeline: what limits how fast its micro-batches can follow each other, for one example."""

    busiest: float  # operations of the busiest stage
    crossing: int  # activations that cross all cuts together
    widest: int  # activations that cross the widest cut


def alone_s(batch, flop, flops_per_s):
    """Seconds of one step on one device; a forward pass takes `flop` per example."""
    return 3 * batch * flop / flops_per_s  # forward, and twice as much backward


def data_parallel_s(k, shard_s, params_s, overlap=0):
    """Seconds of one step in which each of k ranks computes its shard in `shard_s`."""
    send_s = 2 * (k - 1) / k * params_s
    backward_s = 2 / 3 * shard_s  # the sending can hide behind it
    return shard_s + send_s - overlap * min(send_s, backward_s)


def tensor_parallel_s(k, work_s, reads_s, overlap=0):
    """Seconds of one step in which each of k ranks computes a k-th of every layer."""
    send_s = 2 * (k - 1) / k * reads_s
    return work_s / k + send_s - overlap * min(send_s, work_s / k)


def pipeline_s(work_s, busiest_s, crossing_s, widest_s, micro=1):
    """Seconds of one step in which `micro` micro-batches pass through all stages."""
    first_s = work_s + 2 * crossing_s  # through all stages and cuts, and back
    next_s = max(busiest_s / 3, widest_s) + max(2 / 3 * busiest_s, widest_s)
    return (first_s + (micro - 1) * next_s) / micro


def stages_of(pieces: Sequence[Piece], k: int) -> Stages:
    """The pieces in `k` stages, in their order, cut so that the busiest stage has the least work, however much is sent.

    Raises ValueError if there are fewer pieces than stages.
    """
    cuts = cuts_of(pieces, k)
    wide = [pieces[cut - 1].outputs for cut in cuts]
    return Stages(max(flop_of_stages(pieces, cuts)), sum(wide), max(wide, default=0))


def cuts_of(pieces: Sequence[Piece], k: int) -> tuple[int, ...]:
    """How many pieces come before each of the k - 1 cuts that `stages_of` makes."""
    if k > len(pieces):
        raise ValueError(f"{len(pieces)} pieces cannot be cut into {k} stages")
    return min(combinations(range(1, len(pieces)), k - 1), key=lambda cuts: max(flop_of_stages(pieces, cuts)))


def flop_of_stages(pieces: Sequence[Piece], cuts: Sequence[int]) -> list[float]:
    """The operations of each stage for one example; `cuts` says how many pieces come before each cut."""
    bounds = [0, *cuts, len(pieces)]
    return [sum(piece.flop for piece in pieces[a:b]) for a, b in zip(bounds, bounds[1:])]


def pieces_of(parts: Sequence[nn.Module], X: Tensor) -> list[Piece]:
    """Call the parts of a network in turn on the examples X, on the CPU, and count what each part computes and reads.

    X itself does not count as read, because every rank can have it. The loss reads the outputs of the last part.
    """
    pieces, known = [], [X]  # kept alive, so that no later tensor can take the identity of one of them
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
