"""The check of the exercise `ex-least-bandwidth`."""

from d2lpar.checks import is_number
from d2lpar.cost import Link, ring_s


def check(least_mbit):
    """What is not right yet of the answer, in words, or "Right."."""
    for size, one_s, k, hidden in ((516_000, 0.064, 2, 0.0), (516_272, 0.64, 2, 0.16), (516_000, 0.064, 4, 0.0),
                                   (10**6, 0.1, 100, 0.0), (44_703_272, 0.1, 8, 0.05)):
        mbit = least_mbit(size, one_s, k, hidden)
        if not is_number(mbit) or not mbit > 0:
            return f"Not yet: the answer must be a bandwidth above 0, but it is {mbit!r}."
        update_s = one_s / k + ring_s(size, k, Link(0.0, 8e-6 / mbit)) - hidden
        if not abs(update_s / one_s - 1) < 1e-6:
            return (f"Not yet: with {size:,} bytes, {one_s} s on one host and {hidden} s hidden, {k} hosts with "
                    f"{mbit:.6g} Mbit/s take {update_s:.4g} s.")
    return "Right."
