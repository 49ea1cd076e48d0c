"""The check of the exercise `ex-one-off`."""


def check_number(answer: float) -> str:
    """What is not right yet of the answer, in words, or "Right."."""
    hints = {123: "that is the right sum; but rank 0 is one call behind", 40: "that is what rank 0 takes",
             41: "that is rank 1's own; who else is in step 2 already?", 81: "that is what two ranks should have",
             84: "rank 0's loss has met something a turn earlier", 33: "that is step 1",
             82: "rank 2 has a gradient of its own"}
    if answer == 83:
        return "Right."
    hint = f": {hints[answer]}" if answer in hints else ""
    return f"Not yet: {answer:.4g}{hint}. What does each rank bring to its third call?"
