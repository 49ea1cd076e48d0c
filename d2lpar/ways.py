"""Data, tensor and pipeline parallelism: the last two on ranks, and how long a training step takes with each of them.

`column_row_mlp` shares two layers, and `pipeline_step` shares a stack of layers. They run on the ranks of a group, and
need no GPU.

One model gives the times of all three: every rank computes at the same rate, and from every rank to the next a link
carries the same number of bytes per second in each direction at the same time. A backward pass is twice the work of a
forward pass, a value has two bytes, as in bfloat16, and a message costs nothing but its bytes; `d2lpar.cost` adds the
latency of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.autograd import Function

BYTES = 2  # of a value, as in bfloat16
SLOTS = {"F": 1, "B": 2}  # how long a forward and a backward pass of one micro-batch take in a stage
Order = Sequence[tuple[str, int]]  # what a rank of a pipeline does, one after the other: ("F", 0), ("B", 0), ...


def sum_over_ranks(x):
    """The sum of x over all ranks, as a new tensor; x stays as it is."""
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


class Summed(Function):
    """The output of row-parallel layers, of which every rank has a summand."""

    @staticmethod
    def forward(ctx, x):
        """The sum of the values on all ranks."""
        return sum_over_ranks(x)

    @staticmethod
    def backward(ctx, *grads):
        """The same gradient."""
        return grads[0]


class Copied(Function):
    """The input of column-parallel layers, which is whole on every rank."""

    @staticmethod
    def forward(ctx, x):
        """The same values."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *grads):
        """The sum of the gradients on all ranks."""
        return sum_over_ranks(*grads)


def column_row_mlp(X, W1, b1, W2, b2):
    """relu(X @ W1 + b1) @ W2 + b2, on every rank. X and b2 are whole on all ranks. Of
    the hidden units, a rank has some: columns of W1, values of b1, rows of W2."""
    hidden = torch.relu(Copied.apply(X) @ W1 + b1)
    return Summed.apply(hidden @ W2) + b2


def gpipe_order(num_micro):
    """What each rank does, in turn: the forward pass ("F", i) of each micro-batch i,
    then the backward pass ("B", i) of each of them, beginning with the last one."""
    micro = range(num_micro)
    return [("F", i) for i in micro] + [("B", i) for i in reversed(micro)]


def pipeline_step(stage, order, inputs, loss_of):
    """Run this rank's stage on micro-batches in this order; their gradients add up.

    `inputs` are the micro-batches. The first stage reads them; the others take only their shapes and dtype, so all
    stages have inputs of one shape. `loss_of(y, i)` is called on the last rank, with the outputs for micro-batch i.
    Blocks until everything is sent; ranks whose orders do not fit together wait for each other until a time-out.
    """
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    held, sends = {}, []
    for what, i in order:
        if what == "F":
            x = inputs[i]
            if rank > 0:
                dist.recv(x := torch.empty_like(x), rank - 1, tag=i)
                x.requires_grad_()
            y = stage(x)
            if rank < last:
                sends.append(dist.isend(y.detach(), rank + 1, tag=i))
            held[i] = x, y if rank < last else loss_of(y, i)
        else:
            (x, y), grad = held.pop(i), None
            if rank < last:
                dist.recv(grad := torch.empty_like(y), rank + 1, tag=i)
            y.backward(grad)
            if rank > 0:
                sends.append(dist.isend(x.grad, rank - 1, tag=i))
    for message in sends:
        message.wait()


def most_held(order: Order) -> int:
    """The largest number of micro-batches that a rank holds at once, between their forward and their backward pass."""
    return max(accumulate(1 if what == "F" else -1 for what, _ in order))


def first_slots(orders: Sequence[Order]) -> list[list[int]]:
    """When each rank of a pipeline begins each entry of its order, as early as possible; a message takes no time.

    A forward pass needs that of the stage before, a backward pass that of the stage behind, and its own forward pass.
    Raises ValueError if the ranks would wait for each other forever.
    """
    ends: dict[tuple[str, int, int], int] = {}
    starts: list[list[int]] = [[] for _ in orders]
    free, last = [0] * len(orders), len(orders) - 1
    while any(len(begun) < len(order) for begun, order in zip(starts, orders)):
        before = len(ends)
        for rank, order in enumerate(orders):
            for what, i in order[len(starts[rank]):]:
                needs = [("F", i, rank - 1)] * (rank > 0) if what == "F" else (
                    [("F", i, rank)] + [("B", i, rank + 1)] * (rank < last))
                if not all(need in ends for need in needs):
                    break
                start = max([free[rank], *(ends[need] for need in needs)])
                starts[rank].append(start)
                ends[what, i, rank] = free[rank] = start + SLOTS[what]
        if len(ends) == before:
            stuck = [f"rank {rank} at {''.join(map(str, order[len(begun)]))}"
                     for rank, (begun, order) in enumerate(zip(starts, orders)) if len(begun) < len(order)]
            raise ValueError(f"these orders do not fit together: {', '.join(stuck)} would wait forever")
    return starts


def rows_of_slots(orders: Sequence[Order]) -> list[str]:
    """A timeline in text, a row for each rank and three characters for each slot: F0 takes one slot, B0 two."""
    rows = []
    for starts, order in zip(first_slots(orders), orders):
        row: list[str] = []
        for start, (what, i) in zip(starts, order):
            row += ["."] * (start - len(row)) + [f"{what}{i}"] * SLOTS[what]
        rows.append(" ".join(f"{slot:2}" for slot in row).rstrip())
    return rows


class Piece(NamedTuple):
    """A part of a network that a pipeline does not split: its work, parameters and activations for one example."""

    flop: float  # floating-point operations of the forward pass
    params: int  # values in its parameters
    summed: int  # activations and gradients that tensor parallelism sums over the ranks, in both passes together
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


def tensor_parallel_s(k, work_s, summed_s, overlap=0):
    """Seconds of one step in which each of k ranks computes a k-th of every layer."""
    send_s = 2 * (k - 1) / k * summed_s
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


def transformer_pieces(num_blocks: int, width: int, tokens: int) -> list[Piece]:
    """The blocks of a transformer, for one sequence of so many tokens; the hidden layer is four times as wide.

    Only matrix products count as work, without biases, norms and embeddings. In each block, attention and the MLP are
    both shared as in `column_row_mlp`, so each of them sums its outputs in the forward pass and the gradients of its
    inputs in the backward pass.
    """
    values = tokens * width
    flop = 24 * values * width + 4 * tokens * values  # with the weights; and of queries with keys, and with values
    return [Piece(flop, 12 * width**2, 4 * values, values)] * num_blocks
