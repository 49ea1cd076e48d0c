"""Ctrl-C, or *Interrupt Kernel*, at a moment that leaves nothing half done.

An interrupt may come between any two operations: after one replica has taken a step, and before another has. What must
happen on all devices or on none runs `uninterrupted`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


class Waiting:
    """The interrupts that wait for the end of a block, counted in `count`."""

    def __init__(self, handler: Callable, patience: float) -> None:
        self.handler, self.patience = handler, patience
        self.count = 0
        self.frame: FrameType | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """What Python calls at an interrupt."""
        self.count, self.frame = self.count + 1, frame
        if self.count >= self.patience:
            signal.signal(signal.SIGINT, self.handler)  # first: from here on every interrupt is obeyed
            self.handler(number, frame)


@contextmanager
def uninterrupted(patience: float = 3) -> Generator[Waiting | None]:
    """Within this block an interrupt waits, and is raised at its end; `@uninterrupted()` does the same for a function.

    In other threads than the main one, which no interrupt reaches, nothing changes. Of two blocks, one within the
    other, the outer one's end counts.

    Args:
        patience: this interrupt in one block is obeyed where it comes, as are all later ones, for a block that may
            never end; what is half done then stays half done.
    """
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if isinstance(handler, Waiting):
        before, handler.patience = handler.patience, max(handler.patience, patience)
        try:
            yield handler
        finally:
            handler.patience = before
        return
    if not callable(handler):  # interrupts are ignored, or end the program
        yield None
        return
    waiting = Waiting(handler, patience)
    signal.signal(signal.SIGINT, waiting)
    try:
        yield waiting
    finally:
        if signal.getsignal(signal.SIGINT) is waiting:  # else the last one has been obeyed
            signal.signal(signal.SIGINT, handler)
            if waiting.count:
                handler(signal.SIGINT, waiting.frame)
