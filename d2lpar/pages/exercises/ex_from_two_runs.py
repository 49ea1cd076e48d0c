"""The check of the exercise `ex-from-two-runs`."""

from d2lpar.cost import efficiency_at


def check_number(answer: float) -> str:
    """What is still wrong with the answer, in words, or "Right."."""
    right = efficiency_at(96, [(8, 16, 0.130), (8, 48, 0.290)])
    if abs(answer - right) < 0.001:
        return "Right."
    if not 0 < answer < 1:
        return f"Not yet: the efficiency must be between 0 and 1, but it is {answer:g}."
    return (f"Not yet: with 96 examples, computing takes 480 ms, so an efficiency of {answer:.3f} means that "
            f"{480 / answer - 480:.0f} ms are added.")
