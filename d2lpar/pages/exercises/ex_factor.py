"""The check of the exercise `ex-factor`."""

HINTS = {-1: "that is the mean of the two means; what is the right mean?",
         0.25: "so much is missing, but which factor is it?",
         4 / 3: "that is upside down.",
         9 / 8: "that is for the cut after the first example.",
         1: "that would be right for shards of one size."}


def check_number(factor):
    """What is not right yet of the number, in words, or "Right."."""
    if abs(factor - 0.75) < 1e-3:
        return "Right."
    hint = next((hint for wrong, hint in HINTS.items() if abs(factor - wrong) < 1e-2), "which two means are there?")
    return f"Not yet: {factor:g}, {hint}"
