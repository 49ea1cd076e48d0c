"""Checks of numbers worked out by hand, with a hint for each plausible mistake."""

from collections.abc import Callable, Mapping
from math import isclose


def by_hand(right: float, hints: Mapping[float, str], otherwise: str) -> Callable[[float], str]:
    """Make a `check_number` that accepts `right` to within 1%, and has a hint for each wrong number in `hints`."""
    def check_number(answer: float) -> str:
        if isclose(answer, right, rel_tol=0.01):
            return "Right."
        hint = next((hint for wrong, hint in hints.items() if isclose(answer, wrong, rel_tol=0.01)), otherwise)
        return f"Not yet: {answer:g}? {hint}"

    return check_number
