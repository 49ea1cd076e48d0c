"""The check of the exercise `ex-at-once`."""


def check_number(answer: float) -> str:
    """Return "Right.", or "Not yet: " and what is still wrong with the answer."""
    hints = {4: "the last millisecond is not divided", 7: "that is the time of the threads in ms; divide",
             25: "that is the time of the loop in ms; divide", 0.28: "that is the share of the time that is left",
             24 / 6: "the last millisecond is not divided", 25 / 8: "there is one allreduce, not one for each device"}
    if abs(answer - 25 / 7) < 0.04:
        return "Right."
    hint = next((f": {hint}" for number, hint in hints.items() if abs(answer - number) < 0.01), "")
    return f"Not yet: {answer:.4g} times as fast{hint}. How long is each of your two timelines?"
