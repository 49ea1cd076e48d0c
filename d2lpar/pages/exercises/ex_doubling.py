"""The check of the exercise `ex-doubling`."""

from d2lpar.pages.scaling import published_scaling

PUBLISHED = (("A4-15", "A4-17", "exchange"), ("A3-21", "A3-22", "slowest"), ("A4-20", "A4-22", "exchange"),
             ("A4-29", "A4-27", "exchange"), ("A8-03", "A8-02", "exchange"), ("A4-11", "A4-13", "exchange"))
OTHERS = (((10, 0.050), (40, 0.090), "exchange"), ((10, 0.050), (40, 0.110), "slowest"),
          ((8, 0.100), (16, 0.139), "exchange"), ((8, 0.100), (16, 0.145), "slowest"),
          ((8, 0.100), (16, 0.230), "slowest"))


def check(waits_for):
    """What is not right yet of the answer, in words, or "Right."."""
    runs = {run.name: (run.batch, run.added_s) for run in published_scaling()}
    pairs = [(*sorted((runs[one], runs[other])), right) for one, other, right in PUBLISHED]
    for few, many, right in (*pairs, *OTHERS):
        answer = waits_for(few, many)
        if answer != right:
            return (f"Not yet: from {few[0]} to {many[0]} examples, {1e3 * few[1]:.0f} added ms become "
                    f"{1e3 * many[1]:.0f}, and you return {answer!r}.")
    return "Right."
