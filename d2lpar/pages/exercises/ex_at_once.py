"""The check of the exercise `ex-at-once`."""


def check_number(answer: float) -> str:
    """What is not right yet of the answer, in words, or "Right."."""
    hints = {4: "the last millisecond is not shared", 7: "that is how many ms the threads take; divide",
             25: "that is how many ms the loop takes; divide", 0.28: "that is how much of the time is left",
             24 / 6: "the last millisecond is not shared", 25 / 8: "there is one sum, not one for each device"}
    if abs(answer - 25 / 7) < 0.04:
        return "Right."
    hint = next((f": {hint}" for number, hint in hints.items() if abs(answer - number) < 0.01), "")
    return f"Not yet: {answer:.4g} times as fast{hint}. How long is each of your two timelines?"
