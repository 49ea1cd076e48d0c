"""To wait for what another thread or process does, however slow the machine is."""

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], at_most_s: float = 60.0) -> None:
    """Wait until `condition()`; look for it often."""
    deadline = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
