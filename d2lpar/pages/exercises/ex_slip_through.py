"""The check of the exercise `ex-slip-through`."""

from d2lpar import RankGroup, diagnose
from d2lpar.pages.ddp_examples import examples, make_net


def check(slips):
    """What is not right yet of the answer, in words, or "Right."."""
    with RankGroup(2, "gloo") as ranks:
        three, six = (diagnose(slips, make_net, *examples(make_net, 96), ranks, num_steps) for num_steps in (3, 6))
    if not three.ok:
        return f"Not yet: three steps are enough to see {', '.join(three.faults)}."
    if six.faults.keys() & {"raises", "hangs", "NaN"}:
        return f"Not yet: six steps show {', '.join(six.faults)}, and nobody would miss that."
    return "Not yet: six steps show no fault either." if six.ok else "Right."
