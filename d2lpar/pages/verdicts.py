"""What the check of an exercise, or of a function that the reader has written, says of it, even if it raises."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from importlib import import_module
from traceback import extract_tb, walk_tb
from typing import Any

from d2lpar.checks import is_number, shown
from d2lpar.pages.building import check_function


def check(label: str | Callable, answer: Any = None) -> None:
    """Print what the check of the exercise with this label says of `answer`.

    In the building edition, `check(fn)` prints what the check of the function that the reader has written says of it.
    """
    if not isinstance(label, str):
        check_function(label)
        return
    exercise = import_module(f"d2lpar.pages.exercises.{label.replace('-', '_')}")
    if hasattr(exercise, "check_number"):  # one that is done by hand
        number = float(answer) if isinstance(answer, Fraction) else answer
        print(exercise.check_number(number) if is_number(number) else
              f"Not yet: the answer must be a number, but it is {shown(answer)}.")
    else:
        verdict(exercise.check, answer)


def verdict(check: Callable, answer: Any) -> None:
    """Print what `check(answer)` says: "Right.", or "Not yet: " and what is wrong.

    An answer that raises, that is not a function, or whose result is not of the kind that
    is asked for is told so in words too, never by a traceback.
    """
    if not callable(answer):
        print(f"Not yet: the answer must be a function, but it is {shown(answer)}.")
        return
    raised: list[BaseException] = []
    returned: list[Any] = []

    @wraps(answer)
    def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            returned.append(answer(*args, **kwargs))
            return returned[-1]
        except BaseException as error:
            raised.append(error)
            raise

    try:
        print(check(watched))
    except (Exception, SystemExit) as error:
        if any(error is one for one in raised):
            whose = "your function raises" + _where(answer, error)
        elif returned and returned[-1] is None:
            print("Not yet: your function returns nothing. Is there a `return`?")
            return
        else:
            whose = "the check cannot read what your function gives"
        print(f"Not yet: {whose}, {type(error).__name__}: {error}")


def _where(answer: Callable, error: BaseException) -> str:
    """The line of the answer in which it raised, if it can be found."""
    for (frame, _), summary in zip(walk_tb(error.__traceback__), extract_tb(error.__traceback__)):
        known = summary.line and summary.filename != "<string>"  # of which Python 3.13 has the line of `python -c`
        if known and frame.f_code is getattr(answer, "__code__", None):
            return f" in the line `{summary.line}`"
    return ""
