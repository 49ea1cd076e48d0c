"""What the check of an exercise says of a reader's answer, also of one that raises (all chapters)."""

from __future__ import annotations

from collections.abc import Callable
from traceback import extract_tb, walk_tb
from typing import Any

from d2lpar.checks import check_functions, shown


def verdict(check: Callable, answer: Any) -> None:
    """Print what `check(answer)` says: "Right.", or "Not yet: " and what is wrong.

    An answer that raises, that is no function, or whose result is not of the kind that
    is asked for is told so in words too, never by a traceback.
    """
    check_functions(check=check)
    if not callable(answer):
        print(f"Not yet: the answer must be a function, it is {shown(answer)}.")
        return
    try:
        print(check(answer))
    except Exception as error:
        print(f"Not yet: {_whose_fault(answer, error)}{type(error).__name__}: {error}")


def _whose_fault(answer: Callable, error: Exception) -> str:
    """Whether the answer raised `error`, and in which line, or gave what the check could not read."""
    for (frame, _), summary in zip(walk_tb(error.__traceback__), extract_tb(error.__traceback__)):
        if frame.f_code is getattr(answer, "__code__", None):
            return "your function raises" + f" in the line `{summary.line}`" * bool(summary.line) + ", "
    return "the check cannot read what your function gives, "
