"""The check of the exercise `ex-part-bytes`."""

HINTS = {18: "that is stage 0, which divides nothing.",
         2.25: "that is stage 3. Stage 2 leaves the parameters whole.",
         12.75: "that is stage 1. Stage 2 divides the gradients, too.",
         8.25: "Adam stores two values per parameter, but momentum only one.",
         1.875: "a float32 value takes 4 bytes."}


def check_number(gigabytes):
    """What is still wrong with the answer, in words, or "Right."."""
    if abs(gigabytes - 7.5) < 1e-3:
        return "Right."
    hint = next((hint for wrong, hint in HINTS.items() if abs(gigabytes - wrong) < 1e-2),
                "what does stage 2 divide by 8?")
    return f"Not yet: your answer is {gigabytes:g}; {hint}"
