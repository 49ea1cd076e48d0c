"""Whether an algorithm moves numbers between ranks by messages alone (chapter 3).

A meter counts the messages that it sees. Code that reads another rank's memory may send none, or any that look right.
An audit runs it again with other numbers, and so finds what each rank can have known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from d2lpar.buffers import check_buffers, check_lists
from d2lpar.checks import check_functions, check_list
from d2lpar.messages import Message, Meter


class AuditError(ValueError):
    """A rank knew what no message brought it, or the messages cannot be followed."""


def audit(algorithm: Callable[[Any], object], data: Sequence[Any]) -> Meter:
    """Run `algorithm(data)`, and give the meter of this run if numbers went between ranks by messages alone.

    The algorithm is then run once more for each rank. Nothing changes for this rank: it begins with the same numbers,
    and each message brings it what it brought in the first run. All other ranks begin with other numbers. If this
    rank now ends with other bits, or sends others, it has read what was not its own.

    This finds what one more run can show. Code that remembers the first run is not found.

    Args:
        algorithm: sends all messages in rounds, by `exchange`; its messages do not depend on the numbers in them.
        data: one tensor for each rank, or one list of tensors. They end as the first run left them.

    Raises:
        AuditError: for what a rank knew, or for messages without rounds, or that are others in another run.
        ValueError: before anything is run, if `data` are not what a collective takes.
    """
    check_functions(algorithm=algorithm)
    check_list("data", data)
    flat = len(data) == 0 or isinstance(data[0], Tensor)
    (check_buffers if flat else check_lists)(data)
    ranks: list[list[Tensor]] = [[x] if flat else [*x] for x in data]
    devices = [tensors[0].device for tensors in ranks]

    def run(meter: _Recorder) -> _Recorder:
        with meter:
            algorithm([x for [x] in ranks] if flat else [[*tensors] for tensors in ranks])
        return meter

    start = [[_copy(x) for x in tensors] for tensors in ranks]
    first = run(_Recorder(devices))
    end = [[_copy(x) for x in tensors] for tensors in ranks]
    for message in first.messages:
        if message.round is None:
            raise AuditError(f"an audit follows messages in rounds, but one from rank {message.source} to rank "
                             f"{message.target} was sent without a round")
    try:
        for rank in range(len(ranks)):
            for other, (tensors, numbers) in enumerate(zip(ranks, start)):
                for x, number in zip(tensors, numbers):
                    x.copy_(number if other == rank else other + 1 + (number == other + 1))  # another everywhere
            _compare(rank, first, run(_Recorder(devices, rank, first.contents)))
            if not all(_same_bits(x, y) for x, y in zip(ranks[rank], end[rank])):
                raise AuditError(f"rank {rank} ends with numbers that no message brought it")
    finally:
        for tensors, numbers in zip(ranks, end):
            for x, number in zip(tensors, numbers):
                x.copy_(number)
    return first


class _Recorder(Meter):
    """A meter that keeps the contents of all messages, and brings one rank others instead, if there are any."""

    def __init__(self, devices: Sequence[torch.device], rank: int | None = None,
                 brings: Mapping[Message, Tensor] = MappingProxyType({})) -> None:
        super().__init__(devices)
        self.contents: dict[Message, Tensor] = {}
        self._rank, self._brings = rank, brings

    def carry(self, message: Message, x: Tensor) -> Tensor:
        self.contents[message] = _copy(x)
        return self._brings.get(message, x) if message.target == self._rank else x


def _compare(rank: int, first: _Recorder, again: _Recorder) -> None:
    if again.contents.keys() != first.contents.keys():
        raise AuditError("with other numbers other messages are sent, which an audit cannot follow")
    for message, x in first.contents.items():
        if message.source == rank and not _same_bits(x, again.contents[message]):
            raise AuditError(f"rank {rank} sends rank {message.target} numbers that no message brought it")


def _copy(x: Tensor) -> Tensor:
    return x.detach().clone(memory_format=torch.contiguous_format)


def _same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(*(_copy(z).view(-1).view(torch.uint8) for z in (x, y)))
