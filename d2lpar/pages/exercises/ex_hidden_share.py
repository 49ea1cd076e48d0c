"""The check of the exercise `ex-hidden-share`."""

from d2lpar.checks import is_number
from d2lpar.timing import Span

CASES = [  # what is sent and what is computed, in seconds, and the share that is hidden
    ("a send that begins before the computing ends", [(4, 8)], [(0, 6)], 0.5),
    ("a send after all computing", [(5, 7)], [(0, 4)], 0.0),
    ("a send within one computation", [(1, 2)], [(0, 4)], 1.0),
    ("a computation within one send", [(0, 8)], [(2, 4)], 0.25),
    ("a send that meets two computations", [(1, 5)], [(0, 2), (4, 6)], 0.5),
    ("two sends, of which the longer is hidden", [(1, 4), (6, 7)], [(0, 5)], 0.75),
    ("two sends that meet a gap between two computations", [(2, 4), (5, 8)], [(0, 3), (6, 7)], 0.4),
]


def check(hidden_share):
    """What is not right yet of the answer, in words, or "Right."."""
    for case, sends, computes, right in CASES:
        for zero in (0.0, 100.0):  # a stopwatch may run since long
            spans = [Span(1, "all_reduce", zero + a, zero + b) for a, b in sends]
            spans += [Span(1, ("forward", "backward")[i % 2], zero + a, zero + b) for i, (a, b) in enumerate(computes)]
            answer = hidden_share(sorted(spans, key=lambda span: span.start_s))
            if not is_number(answer):
                return "Not yet: hidden_share must give a number."
            if not abs(answer - right) < 1e-9:
                return f"Not yet: {case}: you give {answer:.4g}, it is {right}."
    return "Right."
