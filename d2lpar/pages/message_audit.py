"""Whether an algorithm moves values between ranks by messages alone.

A meter counts the messages that it sees. Code that reads the memory of a different rank may send no messages, or some
that look right. An audit runs the code again with different values, and so finds what each rank could have known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Thread, current_thread
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from d2lpar.checks import check_buffers, check_lists
from d2lpar.collectives import Message, Meter


class AuditError(ValueError):
    """A rank used values that no message brought it, or the messages cannot be followed."""


def audit(algorithm: Callable[[Any], object], data: Sequence[Any]) -> Meter:
    """Run `algorithm(data)`, and return the meter of this run if values moved between ranks by messages alone.

    The algorithm is then run once more for each rank. Nothing changes for this rank: it starts with the same values,
    and each message brings it the same values as in the first run. All other ranks start with different values. If
    this rank now ends with different bits, or sends different bits, it has used values that no message brought it.

    This finds only what one more run can show. It misses code that remembers the first run, and a read that makes no
    difference to the result. An algorithm whose second run differs from the first cannot be followed and is refused:
    one that keeps a state from run to run, or draws from generators other than PyTorch's own. PyTorch's generators
    start each run in the same state, and are left as they were.

    Args:
        algorithm: sends all messages in rounds, with `exchange`, from one thread; which messages it sends does not
            depend on the values.
        data: one tensor for each rank, or one list of tensors. They end as the first run left them.

    Raises:
        AuditError: if a rank used such values, or if the run cannot be followed: messages without rounds, rounds from
            several threads or in which a rank sends or receives twice, or a second run that differs from the first.
        ValueError: before anything is run, if `data` is not what a collective takes.
    """
    flat = len(data) == 0 or isinstance(data[0], Tensor)
    (check_buffers if flat else check_lists)(data)
    ranks: list[list[Tensor]] = [[x] if flat else [*x] for x in data]
    places = [[x.detach() for x in tensors] for tensors in ranks]  # keep their shapes, whatever is done with x
    devices = [tensors[0].device for tensors in ranks]

    def run(meter: _Recorder) -> _Recorder:
        with torch.random.fork_rng({device.index for device in devices if device.type == "cuda"}), meter:
            algorithm([x for [x] in ranks] if flat else [[*tensors] for tensors in ranks])
        return meter

    def put(rank: int, numbers: list[Tensor]) -> None:
        for x, place, number in zip(ranks[rank], places[rank], numbers):
            if x.shape != place.shape:
                x.data = place
            x.copy_(number)

    start = [[_copy(x) for x in tensors] for tensors in ranks]
    first = run(_Recorder(devices))
    _check_rounds(first)
    if any(x.shape != place.shape for pairs in map(zip, ranks, places) for x, place in pairs):
        raise AuditError("a tensor has a different shape after the run, which an audit cannot follow")
    end = [[_copy(x) for x in tensors] for tensors in ranks]

    def again(rank: int | None) -> str:
        """What changes if only `rank` starts with the same values, or, for None, if all ranks do."""
        for other, numbers in enumerate(start):
            same = rank in (None, other)
            put(other, numbers if same else [other + 1 + (x == other + 1) for x in numbers])  # different everywhere
        meter = run(_Recorder(devices, rank, first.contents))
        if sorted(meter.messages) != sorted(first.messages):
            return "sends different messages"
        for message, x in first.contents.items():
            if rank in (None, message.source) and not _same_bits(x, meter.contents[message]):
                return f"sends rank {message.target} values that no message brought it"
        for other in range(len(ranks)) if rank is None else [rank]:
            if not all(_same_bits(x, y) for x, y in zip(ranks[other], end[other])):
                return "ends with values that no message brought it"
        return ""

    try:
        for rank in range(len(ranks)):
            if problem := again(rank):
                if again(None):
                    raise AuditError("with the same values, a second run differs from the first: it keeps a state, or "
                                     "draws random numbers, which an audit cannot follow")
                if problem == "sends different messages":
                    raise AuditError("with different values, different messages are sent, which an audit cannot follow")
                raise AuditError(f"rank {rank} {problem}")
    finally:
        for rank, numbers in enumerate(end):
            put(rank, numbers)
    return first


class _Recorder(Meter):
    """A meter that keeps the contents of all messages; those in `brings` replace the contents that `rank` receives."""

    def __init__(self, devices: Sequence[torch.device], rank: int | None = None,
                 brings: Mapping[Message, Tensor] = MappingProxyType({})) -> None:
        super().__init__(devices)
        self.contents: dict[Message, Tensor] = {}
        self.threads: set[Thread] = set()
        self._rank, self._brings = rank, brings

    def begin_round(self) -> int:
        self.threads.add(current_thread())
        return super().begin_round()

    def carry(self, message: Message, x: Tensor) -> Tensor:
        self.contents[message] = _copy(x)
        return self._brings.get(message, x) if message.target == self._rank else x


def _check_rounds(meter: _Recorder) -> None:
    seen: set[tuple[str, int, int]] = set()
    for message in meter.messages:
        if message.round is None:
            raise AuditError(f"an audit follows messages in rounds, but one from rank {message.source} to rank "
                             f"{message.target} was sent without a round")
        for end in (("sends", message.source, message.round), ("receives", message.target, message.round)):
            if end in seen:
                raise AuditError(f"in round {message.round + 1} rank {end[1]} {end[0]} two messages")
            seen.add(end)
    if len(meter.threads) > 1:
        raise AuditError("several threads begin rounds, and an audit cannot follow their order")


def _copy(x: Tensor) -> Tensor:
    return x.detach().clone(memory_format=torch.contiguous_format)


def _same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(*(_copy(z).view(-1).view(torch.uint8) for z in (x, y)))
