"""The check of the exercise `ex-right-for-two`."""

from d2lpar.checks import is_number
from d2lpar.cost import Link, ring_s

LINKS = Link(0.0, 1e-9), Link(1e-3, 0.0), Link(2e-5, 8e-8)


def check(wrong_s):
    """What is not right yet of the answer, in words, or "Right."."""
    for link in LINKS:
        for size in (1_000, 516_272, 44_703_272):
            two, eight = wrong_s(size, 2, link), wrong_s(size, 8, link)
            if not is_number(two) or not is_number(eight):
                return "Not yet: wrong_s must return a number of seconds."
            if not abs(two / ring_s(size, 2, link) - 1) < 1e-9:
                return (f"Not yet: on two devices you give {two:.6g} s for {size:,} bytes over {link}, and the ring "
                        f"takes {ring_s(size, 2, link):.6g} s.")
    size, link = 516_272, LINKS[0]
    if not wrong_s(size, 8, link) >= 2 * ring_s(size, 8, link):
        return (f"Not yet: on 8 devices, {size:,} bytes take {wrong_s(size, 8, link):.3g} s, and a ring takes "
                f"{ring_s(size, 8, link):.3g} s.")
    return "Right."
