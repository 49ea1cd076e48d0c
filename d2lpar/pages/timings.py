"""Timings as a page prints them, and calls that print nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any


def quietly(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call `fn(*args, **kwargs)` and return its result; whatever it prints is dropped."""
    with redirect_stdout(StringIO()):
        return fn(*args, **kwargs)


def print_speedups(times: Mapping[str, Sequence[float]]) -> None:
    """Print a line for each case of `time_each_repeat`: its time, and how many times as fast as the first case it is.

    Both are medians, with the quartiles in parentheses. A speed-up compares two cases repeat by repeat.
    """
    (_, reference), *_ = times.items()
    width = max(map(len, times))
    for name, seconds in times.items():
        line = f"{name:{width}}  {_quartiles([1e3 * s for s in seconds], '5.1f', ' ms')}"
        if seconds is not reference:
            ratios = [a / b for a, b in zip(reference, seconds, strict=True)]
            line += f"   {_quartiles(ratios, '.2f', ' times as fast')}"
        print(line)


def _quartiles(values: Sequence[float], form: str, unit: str) -> str:
    low, middle, high = (f"{value:{form}}" for value in statistics.quantiles(values, n=4, method="inclusive"))
    return f"{middle}{unit} ({low.strip()} to {high.strip()})"
