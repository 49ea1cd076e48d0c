"""The check of the exercise `ex-doubling`."""

from d2lpar.pages.scaling import published_scaling

PUBLISHED = (("A4-15", "A4-17", "per step"), ("A4-20", "A4-22", "per step"), ("A8-03", "A8-02", "per step"))
OTHERS = (((64, 0.093), (256, 0.204), "per example"), ((10, 0.050), (40, 0.090), "per step"),
          ((10, 0.050), (40, 0.110), "per example"), ((8, 0.100), (16, 0.139), "per step"),
          ((8, 0.100), (16, 0.145), "per example"), ((8, 0.100), (16, 0.230), "per example"),
          ((4, 0.050), (64, 0.190), "per step"), ((4, 0.050), (64, 0.210), "per example"))


def check(paid):
    """What is not right yet of the answer, in words, or "Right."."""
    runs = {run.name: (run.batch, run.added_s) for run in published_scaling()}
    pairs = [(*sorted((runs[one], runs[other])), right) for one, other, right in PUBLISHED]
    for few, many, right in (*pairs, *OTHERS):
        answer = paid(few, many)
        if answer != right:
            return (f"Not yet: from {few[0]} to {many[0]} examples, {1e3 * few[1]:.0f} added ms become "
                    f"{1e3 * many[1]:.0f}, and you return {answer!r}.")
    return "Right."
