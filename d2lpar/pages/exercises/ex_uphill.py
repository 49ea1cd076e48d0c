"""The check of the exercise `ex-uphill`."""

import math


def check(gradients):
    """What is not right yet of the answer, in words, or "Right."."""
    answer = gradients()
    try:
        numbers = [float(number) for number in answer]
    except (TypeError, ValueError):
        return f"Not yet: the answer must be three numbers, but it is {answer!r}."
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)):
        return f"Not yet: the answer must be three finite numbers, but it is {answer!r}."
    right = sum(numbers) / 3
    wrong = sum(max(-1.0, min(1.0, number)) for number in numbers) / 3
    if right * wrong < 0:
        return "Right."
    return (f"Not yet: the mean is {right:.3g}, and the mean of the clipped gradients is {wrong:.3g}.\n"
            "  The two must have opposite signs.")
