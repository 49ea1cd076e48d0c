"""The check of the exercise `ex-how-often`."""

from math import isclose, sqrt

WRITE_S, FAILS_S = 10, 8 * 3600


def check_number(share: float) -> str:
    """What is not right yet of the answer, in words, or "Right."."""
    least = sqrt(2 * WRITE_S / FAILS_S)  # where writing and repeating take equally long
    if isclose(share, least, rel_tol=0.03):
        return "Right."
    if not 0 < share < 1:
        return f"Not yet: {share:.4g} is not a share of the time."
    if share < least:
        return f"Not yet: whatever the interval, more than {share:.4g} is lost."
    return f"Not yet: there is an interval at which less than {share:.4g} is lost."
