"""The check of the exercise `ex-part-bytes`."""

HINTS = {18: "that is stage 0: nothing is divided.",
         2.25: "that is stage 3; stage 2 leaves the parameters whole.",
         12.75: "that is stage 1; stage 2 divides the gradients, too.",
         8.25: "Adam notes two numbers for each parameter, momentum one.",
         1.875: "a number of float32 has 4 bytes."}


def check_number(gigabytes):
    """What is not right yet of the number, in words, or "Right."."""
    if abs(gigabytes - 7.5) < 1e-3:
        return "Right."
    hint = next((hint for wrong, hint in HINTS.items() if abs(gigabytes - wrong) < 1e-2),
                "what does stage 2 divide by 8?")
    return f"Not yet: {gigabytes:g}, {hint}"
