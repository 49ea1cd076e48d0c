"""The check of the exercise `ex-best-cap`."""

from d2lpar.cost import Link, when_sent
from d2lpar.ddp import assign_buckets

MB = 1_000_000
EVEN = [10e-3 - 1e-3 * i for i in range(10)]
CASES = (  # caps in MB, when each gradient is ready, their sizes, ranks and link
    ("the ten gradients of the text", (1, 2, 5, 10), EVEN, [MB] * 10, 2, Link(0.25e-3, 1e-9)),
    ("the same without latency", (1, 2, 5, 10), EVEN, [MB] * 10, 2, Link(0.0, 1e-9)),
    ("the same with eight times the latency", (1, 2, 5, 10), EVEN, [MB] * 10, 2, Link(2e-3, 1e-9)),
    ("the same on eight ranks", (10, 5, 2, 1), EVEN, [MB] * 10, 8, Link(0.25e-3, 1e-9)),
    ("one gradient, for which all caps are equal", (3, 7, 5), [1e-3], [MB], 4, Link(1e-3, 1e-9)),
    ("a large first layer", (1, 4, 8), [9e-3, 2e-3, 1e-3, 0.5e-3], [6 * MB, 2 * MB, 3 * MB, MB], 4,
     Link(0.1e-3, 1e-9)),
)


def check(best_cap):
    """What is not right yet of the answer, in words, or "Right."."""
    for name, caps, ready_s, sizes, k, link in CASES:
        given = [cap * MB for cap in caps]
        ends = {cap: when_sent(assign_buckets(sizes, cap, cap), ready_s, sizes, k, link)[-1][1] for cap in given}
        right = max(cap for cap in given if ends[cap] <= min(ends.values()) * (1 + 1e-9))
        answer = best_cap(list(given), list(ready_s), list(sizes), k, link)
        if answer not in ends:
            return f"Not yet: {name}: the answer must be one of the caps {given}, but it is {answer!r}."
        if answer != right:
            return (f"Not yet: {name}:\n  with a cap of {answer / MB:g} MB, the last bucket arrives after "
                    f"{1e3 * ends[answer]:.4g} ms,\n  and with {right / MB:g} MB after {1e3 * ends[right]:.4g} ms.")
    return "Right."
