"""The check of the exercise `ex-over-the-cap`."""


def check_number(answer: float) -> str:
    """What is not right yet of the answer, in words, or "Right."."""
    hints = {1.5: "that is the first one", 6: "the bucket that waits for this layer is not closed yet",
             5: "a bucket of 5 MB has not reached 6", 8: "buckets are filled from the last layer backwards",
             12.5: "0.5 and 1 MB have reached the first cap", 10: "the 1 MB is in the first bucket"}
    if abs(answer - 11) < 1e-9:
        return "Right."
    hint = next((f": {hint}" for number, hint in hints.items() if answer == number), "")
    return f"Not yet: {answer:.4g} MB{hint}. Which layers come first, and when is a bucket closed?"
