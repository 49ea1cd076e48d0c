"""The check of the exercise `ex-faster-than-itself`."""

from math import isfinite
from statistics import median

from d2lpar.checks import is_number


def check(ms):
    """What is still wrong with the answer, in words, or "Right."."""
    times = [ms(i) for i in range(10)]
    if not all(is_number(t) and isfinite(t) and t > 0 for t in times):
        return "Not yet: every call takes some time, so ms must return a finite number above 0."
    row = median(times[:5]) / median(times[5:])
    turn = median(a / b for a, b in zip(times[::2], times[1::2]))
    if row >= 1.5 and 0.95 <= turn <= 1.05:
        return "Right."
    return f"Not yet: in_a_row returns {row:.2f}, and in_turn returns {turn:.2f}."
