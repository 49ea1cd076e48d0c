"""To wait for what another thread or process does, however slow the machine is."""

import math
import time
from collections.abc import Callable

_LOOK_S = 0.005


def until(condition: Callable[[], bool], at_most_s: float = 60.0) -> None:
    """Wait until `condition()` holds; fail after so many seconds in which the machine did not stand still."""
    for _ in range(math.ceil(at_most_s / _LOOK_S)):
        if condition():
            return
        time.sleep(_LOOK_S)
    raise AssertionError("waited in vain")
