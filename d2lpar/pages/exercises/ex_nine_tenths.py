"""The check of the exercise `ex-nine-tenths`."""


def check_number(answer: float) -> str:
    """What is not right yet of the answer, in words, or "Right."."""
    if abs(answer - 48) < 0.01:
        return "Right."
    if answer <= 0:
        return f"Not yet: {answer:g} is no number of images."
    computing_ms = answer / 8 * 3
    return (f"Not yet: {answer:.4g} images are computed in {computing_ms:.4g} ms, and with the sum a step takes "
            f"{computing_ms + 2:.4g} ms: an efficiency of {computing_ms / (computing_ms + 2):.3f}.")
