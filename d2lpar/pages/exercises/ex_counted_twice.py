"""The check of the exercise `ex-counted-twice`."""

HINTS = {8 / 10: "that is the accuracy on the ten images; how many does the sampler give out?",
         10 / 12: "image 0 is given out twice, and it is wrong both times.",
         7 / 8: "the sampler drops nothing unless you ask for it.",
         3 / 12: "that is the share of wrong answers."}


def check_number(accuracy):
    """What is not right yet of the number, in words, or "Right."."""
    if abs(accuracy - 9 / 12) < 1e-3:
        return "Right."
    hint = next((hint for wrong, hint in HINTS.items() if abs(accuracy - wrong) < 1e-3),
                "which images does each rank get?")
    return f"Not yet: {accuracy:g}, {hint}"
