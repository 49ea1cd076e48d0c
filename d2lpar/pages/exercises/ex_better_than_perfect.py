"""The check of the exercise `ex-better-than-perfect`."""

from d2lpar.cost import efficiency_at

TRUE_S = {(1, 32): 0.100, (8, 32): 0.104, (1, 64): 0.200, (8, 64): 0.204}


def check(disturbed):
    """What is not right yet of the answer, in words, or "Right."."""
    runs = disturbed()
    if not isinstance(runs, list | tuple) or [len(run) for run in runs if isinstance(run, list | tuple)] != [3, 3]:
        return f"Not yet: the answer must be two runs of three numbers each, but it is {runs!r}."
    for k, each, seconds in runs:
        if (k, each) not in TRUE_S:
            return f"Not yet: {k} devices with {each} examples each are not one of the four cases."
        if not 0.9 <= seconds / TRUE_S[k, each] <= 1.1:
            return (f"Not yet: {1e3 * seconds:g} ms is not within 10% of {1e3 * TRUE_S[k, each]:g} ms, the time of "
                    f"{k} device{'s' * (k > 1)} with {each} examples.")
    try:
        found = efficiency_at(64, runs)
    except ValueError as error:
        return f"Not yet: {error}."
    return "Right." if found > 1.05 else f"Not yet: with these runs, efficiency_at(64, runs) is {found:.3f}."
