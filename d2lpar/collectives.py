"""Collective operations: one buffer per device, combined so that every device ends up with the same values.

They are made of messages, which are sent in rounds: in one call of `exchange`, each device sends at most one message
and receives at most one, all at the same time. A `Meter` counts the messages that are actually delivered, in the same
calls that are timed; `d2lpar.pages.message_audit` finds values that travel without a message.

The naive allreduce sends every buffer to the first device and the total back; `d2lpar.scratch` has a version without
messages. Here it uses messages, and is followed by a tree, a ring, and the version that is fastest if all devices share
one memory. All of them work in place, block until they are done (on GPUs, until they are queued), and compute the same
bits on every run. They delay an interrupt (Ctrl+C) until they are done; only the third Ctrl+C takes effect at once. An
integer sum that overflows its dtype wraps around, as PyTorch's own sums do.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from d2lpar.checks import as_arrays, check_buffers, check_lists, cut, overlaps, why_not_written
from d2lpar.devices import all_cores, run_on_devices
from d2lpar.interrupts import uninterrupted
from d2lpar.timing import Span, Stopwatch


class Message(NamedTuple):
    """A delivery that a meter counted; `round` is None for a delivery outside rounds."""

    source: int
    target: int
    size_bytes: int
    round: int | None


class Meter:
    """Counts the messages that `exchange` and `deliver` carry in its `with` block, and records when each arrived.

    It counts nothing else: values that are added or copied without these functions are not messages, so around
    `d2lpar.allreduce` it counts 0.

    Args:
        devices: the devices, in rank order; a message to or from a rank beyond them is refused before it is sent.

    Only one meter can be on at a time; a second one raises RuntimeError.
    """

    on: Meter | None = None

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.messages: list[Message] = []
        self.num_rounds = 0
        self._num_ranks, self._watch = len(devices), Stopwatch(devices)

    def __enter__(self) -> Meter:
        if Meter.on is not None:
            raise RuntimeError("another meter is on, and a message can be counted only once")
        Meter.on = self
        return self

    def __exit__(self, *error: object) -> None:
        Meter.on = None

    def check_ranks(self, *ranks: int) -> None:
        """Raise ValueError unless there is a device for each of `ranks`."""
        for rank in ranks:
            if not 0 <= rank < self._num_ranks:
                raise ValueError(f"rank {rank} sends or receives, but the meter was made for {self._num_ranks} "
                                 f"device{'s' * (self._num_ranks != 1)}, and would not count it")

    def check_round(self, number: int | None) -> None:
        """Raise ValueError unless the round has begun, or is None."""
        if number is not None and number not in range(self.num_rounds):
            raise ValueError(f"{number} is not a round: the meter has begun {self.num_rounds} so far, counted from 0")

    def begin_round(self) -> int:
        """Count one more round, and return its number."""
        self.num_rounds += 1
        return self.num_rounds - 1

    def carry(self, message: Message, x: Tensor) -> Tensor:
        """Return what the message brings, which is what was sent, `x`."""
        return x

    @contextmanager
    def receiving(self, message: Message, what: str, device: torch.device) -> Generator[None]:
        """Time the block that receives the message on `device`, and then count the message."""
        with self._watch(message.target, what, device):
            yield
        self.messages.append(message)

    @property
    def sent_bytes(self) -> list[int]:
        """Bytes sent by each rank."""
        return [sum(m.size_bytes for m in self.messages if m.source == rank) for rank in range(self._num_ranks)]

    @property
    def rounds(self) -> list[list[int]]:
        """The sizes in bytes of the messages of each round."""
        return [[m.size_bytes for m in self.messages if m.round == number] for number in range(self.num_rounds)]

    @property
    def spans(self) -> list[Span]:
        """When each rank was receiving, for a timeline: "add" or "copy"."""
        return self._watch.spans


def exchange(parts: Sequence[Sequence[Tensor]], moves: Sequence[tuple[int, int, int]],
             *, add: bool, into: Sequence[Sequence[Tensor]] | None = None) -> None:
    """One round: for every move (s, t, c), `parts[s][c]` arrives in `into[t][c]`.

    Each message has a thread of its own. Blocks until the last one has arrived.

    Args:
        parts: what each rank may send, `parts[rank][c]`.
        moves: the source rank, the target rank and the number of the part; at most one move
            from each rank and at most one to each rank.
        add: whether the values that arrive are added to the values there, or replace them.
        into: where the parts arrive, with the same shapes; `parts` by default.

    Raises:
        ValueError: before anything is sent, if a rank sends or receives twice, if one
            message writes what another message reads or writes, if a part cannot be
            written or differs in shape or dtype, or if the meter has too few devices.
    """
    into = parts if into is None else into
    _check_moves(parts, moves, into)
    if not moves:
        return
    if meter := Meter.on:
        meter.check_ranks(*[rank for move in moves for rank in move[:2]])
    number = meter.begin_round() if meter else None

    def take_in(source: int, target: int, c: int) -> None:
        deliver(source, target, parts[source][c], into[target][c],
                add=add, round=number)

    run_on_devices(take_in, *zip(*moves))


def deliver(source: int, target: int, x: Tensor | np.ndarray, into: Tensor | np.ndarray,
            *, add: bool, round: int | None = None) -> None:
    """Add `x` to `into`, or copy it there, in the calling thread; a meter counts it.

    Both are tensors, or NumPy arrays in a CPU's memory, whose calls cost less. Raises
    ValueError, before anything is changed, for different shapes, for a rank that does
    not exist, or for a round that the meter has not begun.
    """
    _check_delivery(source, target, x, into)
    if meter := Meter.on:
        meter.check_ranks(source, target)
        meter.check_round(round)
        message = Message(source, target, x.nbytes, round)
        x = meter.carry(message, torch.as_tensor(x))
        device = torch.as_tensor(into).device
        with meter.receiving(message, "add" if add else "copy", device):
            _take_in(x, into, add)
    else:
        _take_in(x, into, add)


def _check_delivery(source: int, target: int, x: Tensor | np.ndarray, into: Tensor | np.ndarray) -> None:
    if min(source, target) < 0:
        raise ValueError(f"a message goes from rank to rank, but the ranks are {source} and {target}")
    if x.shape != into.shape:
        raise ValueError(f"shape {tuple(x.shape)} does not fit into {tuple(into.shape)}")


def _take_in(x: Tensor | np.ndarray, into: Tensor | np.ndarray, add: bool) -> None:
    if isinstance(into, np.ndarray):
        np.add(into, x, out=into) if add else np.copyto(into, x)
    elif add:
        into.add_(torch.as_tensor(x).to(into.device))
    else:
        into.copy_(torch.as_tensor(x))


def _check_moves(parts: Sequence[Sequence[Tensor]], moves: Sequence[tuple[int, int, int]],
                 into: Sequence[Sequence[Tensor]]) -> None:
    for move in moves:
        source, target, c = move
        if min(move) < 0:  # Python would count from the end
            raise ValueError(f"move {move}: ranks and parts count from 0")
        x, y = parts[source][c], into[target][c]
        if problem := why_not_written(y):
            raise ValueError(f"move {move}: part {c} of rank {target} {problem}")
        if x.dtype != y.dtype or x.shape != y.shape:
            raise ValueError(f"move {move}: {x.dtype} of shape {tuple(x.shape)} does not fit into {y.dtype} of shape "
                             f"{tuple(y.shape)}")
    for what, ranks in (("sends", [move[0] for move in moves]), ("receives", [move[1] for move in moves])):
        if len(set(ranks)) < len(ranks):
            twice = next(rank for rank in ranks if ranks.count(rank) > 1)
            raise ValueError(f"rank {twice} {what} two messages in one round: {list(moves)}")
    written, read = [into[target][c] for _, target, c in moves], [parts[source][c] for source, _, c in moves]
    for a, b in overlaps([*written, *read]):
        if a < len(moves) <= b:
            raise ValueError(f"in one round, move {moves[a]} writes what move {moves[b - len(moves)]} reads")
        if b < len(moves):
            raise ValueError(f"in one round, moves {moves[a]} and {moves[b]} write to the same memory")


BLOCK_BYTES = 3 * 2**17  # per buffer: a few blocks fit into a core's cache, and adding one outweighs a call


@uninterrupted()  # package only
def allreduce_naive(data):
    """`allreduce`, message by message, with the same bits.

    `data` is a list of one tensor per device. They have one shape and dtype, and share no memory.
    """
    check_buffers(data)  # package only
    with cut(data, 1) as whole:
        for rank in range(1, len(data)):
            exchange(whole, [(rank, 0, 0)], add=True)
        for rank in range(1, len(data)):
            exchange(whole, [(0, rank, 0)], add=False)


@uninterrupted()  # package only
def allreduce_tree(data):
    """Replace each tensor of `data` with the sum of all, in 2 ceil(log2 k) rounds.

    `data` is a list of one tensor per device. They have one shape and dtype, and share no memory.
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

    `data` is a list of one tensor per device. They have one shape and dtype, and share no memory. The chunks are those
    of `tensor_split(k)`. The other chunks of each rank are left with partial sums.

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

    `data` is a list of one tensor per device. They have one shape and dtype, and share no memory.

    Source: Patarasuk and Yuan, 2009.
    """
    check_buffers(data)  # package only
    k = len(data)
    with cut(data, k) as chunks:
        for step in range(k, 2 * k - 1):  # counting on from reduce_scatter
            moves = [(r, (r + 1) % k, (r - step) % k) for r in range(k)]
            exchange(chunks, moves, add=False)


@uninterrupted()  # package only
def allreduce_ring(data):
    """Replace each tensor of `data` with the sum of all; no rank sends over 2 S.

    `data` is a list of one tensor per device. They have one shape and dtype, and share no memory.
    """
    reduce_scatter(data)
    all_gather(data)


@uninterrupted()  # package only
def allreduce_blocks(data):
    """`allreduce`, block by block while a block is in cache: the same bits, faster.

    `data` is a list of one tensor per device. They have one shape and dtype, and share no memory. This allreduce is
    made for devices that share one memory, and uses one thread per core. (If a value is NaN, the sum is NaN, but not
    always with the same bits.)
    """
    check_buffers(data)  # package only
    length = BLOCK_BYTES // data[0].element_size()
    with cut(data, 1) as whole:
        buffers = as_arrays([x for [x] in whole])
        starts = range(0, len(buffers[0]), length)
        blocks = [[x[i : i + length] for x in buffers] for i in starts]
        workers = min(len(data), all_cores())
        run_on_devices(sum_blocks, [blocks[w::workers] for w in range(workers)])
    increment_version(data)  # autograd does not see what NumPy writes


def sum_blocks(blocks):
    """Allreduce each of `blocks`; a block is a list of pieces, one from each rank."""
    with np.errstate(all="ignore"):  # NumPy warns about infinities, PyTorch does not
        for pieces in blocks:
            others = range(1, len(pieces))
            for rank in others:
                deliver(rank, 0, pieces[rank], pieces[0], add=True)
            for rank in reversed(others):  # the piece used last goes first
                deliver(0, rank, pieces[0], pieces[rank], add=False)


@uninterrupted()  # package only
def allreduce_flat(device_tensors, allreduce=allreduce_ring):
    """Allreduce lists of tensors, one list per device, as one buffer per device.

    Raises:
        ValueError: if the lists differ in length, or the tensors of a list cannot share one buffer.
    """
    check_lists(device_tensors)  # package only
    data = [torch.cat([x.reshape(-1) for x in tensors]) for tensors in device_tensors]
    allreduce(data)
    for buffer, tensors in zip(data, device_tensors):
        for x, part in zip(tensors, buffer.split([x.numel() for x in tensors])):
            x.copy_(part.view_as(x))
