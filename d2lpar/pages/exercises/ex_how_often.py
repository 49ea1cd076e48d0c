"""The check of the exercise `ex-how-often`."""

from math import isclose, sqrt

WRITE_S, FAILS_S = 10, 8 * 3600


def check(answer):
    """What is not right yet of the answer, in words, or "Right."."""
    best_s, lost_share = answer
    if isinstance(best_s, bool) or not isinstance(best_s, int | float) or not 0 < best_s < float("inf"):
        return f"Not yet: best_s must be a number of seconds, it is {best_s!r}."
    if isinstance(lost_share, bool) or not isinstance(lost_share, int | float):
        return f"Not yet: lost_share must be a number, it is {lost_share!r}."
    written, again = WRITE_S / best_s, best_s / 2 / FAILS_S
    if not isclose(best_s, sqrt(2 * WRITE_S * FAILS_S), rel_tol=0.02):
        return (f"Not yet: every {best_s:.4g} s, {written:.2%} of the time goes into writing, and {again:.2%} is done "
                "again; less is possible.")
    if not isclose(lost_share, written + again, rel_tol=0.03):
        return f"Not yet: the time is right, but it loses another share than {lost_share:.4g}."
    return "Right."
