"""Ctrl-C, or *Interrupt Kernel*, at a moment that leaves nothing half done.

An interrupt may come between any two operations: after one replica has taken a step, and before another has. What must
happen on all devices or on none runs `uninterrupted`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted(patience: float = 3) -> Generator[None]:
    """Within this block an interrupt waits, and is raised at its end; `@uninterrupted()` does the same for a function.

    In other threads than the main one, which no interrupt reaches, and within another such block, nothing changes.

    Args:
        patience: this interrupt in one block is raised where it comes, for a block that may never end; what is half
            done then stays half done.
    """
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(handler) or isinstance(handler, _Waiting):  # no interrupts here, or they wait already
        yield
        return
    waiting = _Waiting(patience)
    signal.signal(signal.SIGINT, waiting)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if 0 < waiting.count < patience:
            handler(signal.SIGINT, waiting.frame)


class _Waiting:
    """A signal handler that counts."""

    def __init__(self, patience: float) -> None:
        self.count, self._patience = 0, patience
        self.frame: FrameType | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count, self.frame = self.count + 1, frame
        if self.count == self._patience:
            raise KeyboardInterrupt
