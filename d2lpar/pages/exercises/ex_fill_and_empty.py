"""The check of the exercise `ex-fill-and-empty`."""


def check_number(answer: float) -> str:
    """What is not right yet of the answer, in words, or "Right."."""
    if answer == 27:
        return "Right."
    if answer < 1 or answer != int(answer):
        return f"Not yet: {answer:g} cannot be a number of micro-batches."
    share = answer / (answer + 3)
    return (f"Not yet: with {answer:g} micro-batches the ranks compute for {share:.1%} of the step"
            + (", and fewer micro-batches are enough for 90%." if share > 0.9 else "."))
