"""Messages between devices, sent in rounds, and a meter that counts them.

Naive sum, tree and ring are made of `exchange`: in one round each device sends at most one message and receives at
most one, all at the same time. A `Meter` counts what is really delivered, by the same calls that are timed; what goes
past them, `d2lpar.pages.message_audit` finds.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from d2lpar.base.buffers import overlaps, why_not_written
from d2lpar.base.devices import run_on_devices
from d2lpar.base.timing import Span, Stopwatch


class Message(NamedTuple):
    """One delivery that a meter has seen; `round` is None for one that waited for no round."""

    source: int
    target: int
    size_bytes: int
    round: int | None


class Meter:
    """Counts the messages that `exchange` and `deliver` carry in its `with` block, and records when each arrived.

    It counts nothing else: what is added or copied without them is no message, so around
    `d2lpar.allreduce` it counts 0.

    Args:
        devices: the devices, in rank order; a message to or from a rank beyond them is refused before it is sent.

    Only one meter can be on at a time; RuntimeError otherwise.
    """

    on: Meter | None = None

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.messages: list[Message] = []
        self.num_rounds = 0
        self._num_ranks, self._watch = len(devices), Stopwatch(devices)

    def __enter__(self) -> Meter:
        if Meter.on is not None:
            raise RuntimeError("another meter is on: what is sent can be counted once only")
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
        """Raise ValueError unless the round has begun, or is none."""
        if number is not None and number not in range(self.num_rounds):
            raise ValueError(f"{number} is no round: the meter has begun {self.num_rounds}, counted from 0")

    def begin_round(self) -> int:
        """Count one more round, and give its number."""
        self.num_rounds += 1
        return self.num_rounds - 1

    def carry(self, message: Message, x: Tensor) -> Tensor:
        """What the message brings: what was sent, `x`."""
        return x

    @contextmanager
    def receiving(self, message: Message, what: str, device: torch.device) -> Generator[None]:
        """Time the block that takes the message in on `device`, and then count it."""
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
        moves: source rank, target rank, and which part; at most one to and one from
            each rank.
        add: whether what arrives is added to what is there, or replaces it.
        into: where it arrives, of the same shapes; `parts` by default.

    Raises:
        ValueError: before anything is sent, if a rank sends or receives twice, if one
            message writes what another reads or writes, if a part cannot be written
            or is of another shape or dtype, or if the meter has too few devices.
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

    Tensors, or NumPy arrays in a CPU's memory: their calls cost less. Raises
    ValueError, before anything is changed, for two shapes, a rank that is none, or a
    round that the meter has not begun.
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
        raise ValueError(f"a message goes from rank to rank, got {source} and {target}")
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
            raise ValueError(f"in one round, moves {moves[a]} and {moves[b]} write into one place")
