"""The check of the exercise `ex-factor`."""

HINTS = {-1: "That is the mean of the two means. What is the right mean?",
         0.25: "That is how much is missing. What is the factor?",
         4 / 3: "That is upside down.",
         9 / 8: "That is the factor for the cut after the first example.",
         1: "That would be right for shards of equal size."}


def check_number(factor):
    """What is not right yet of the number, in words, or "Right."."""
    if abs(factor - 0.75) < 1e-3:
        return "Right."
    hint = next((hint for wrong, hint in HINTS.items() if abs(factor - wrong) < 1e-2), "What are the two means?")
    return f"Not yet: {factor:g}? {hint}"
