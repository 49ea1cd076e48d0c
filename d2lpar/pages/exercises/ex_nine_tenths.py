"""The check of the exercise `ex-nine-tenths`."""


def check_number(answer: float) -> str:
    """What is still wrong with the answer, in words, or "Right."."""
    if abs(answer - 48) < 0.01:
        return "Right."
    if answer <= 0:
        return f"Not yet: {answer:g} is not a number of images."
    computing_ms = answer / 8 * 3
    return (f"Not yet: computing {answer:.4g} images takes {computing_ms:.4g} ms. With the allreduce, a step takes "
            f"{computing_ms + 2:.4g} ms, so the efficiency is {computing_ms / (computing_ms + 2):.3f}.")
