"""The check of the exercise `ex-below-zero`."""

import numpy as np

from d2lpar.cost import fit_link

SIZES = [2**i for i in range(10, 27, 2)]


def check(spoil):
    """What is not right yet of the answer, in words, or "Right."."""
    exact = [1e-5 + 1e-10 * n for n in SIZES]
    given = spoil([*exact])
    spoiled = [float(t) for t in given]
    if len(spoiled) != len(exact):
        return f"Not yet: return all {len(exact)} times; you returned {len(spoiled)}."
    changed = [i for i, (a, b) in enumerate(zip(spoiled, exact)) if a != b]
    if len(changed) != 1:
        return f"Not yet: change exactly one time; you changed {len(changed)}."
    [i] = changed
    if not abs(spoiled[i] / exact[i] - 1) <= 0.1 + 1e-9:
        return f"Not yet: the time of {SIZES[i]:,} bytes is {spoiled[i] / exact[i]:.2f} times what it was."
    plain = np.polyfit(SIZES, spoiled, 1)[1]
    if not plain < 0:
        relative = fit_link(SIZES, spoiled).alpha_s
        return f"Not yet: least squares finds alpha = {1e6 * plain:.1f} us, and fit_link finds {1e6 * relative:.1f} us."
    return "Right."
