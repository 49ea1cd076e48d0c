"""The check of the exercise `ex-eight-gpus`."""

HINTS = [(2.857, "that is the speed-up; divide it by the number of GPUs"),
         (35.7, "that is a percentage; give a number between 0 and 1"),
         (4.9, "that is the time of an epoch on eight GPUs, in seconds"),
         (0.795, "that is the efficiency of two GPUs"),
         (0.199, "with this efficiency, eight GPUs take as long as two")]


def check_number(efficiency):
    """Return "Right.", or "Not yet: " and what is still wrong with the answer."""
    if abs(efficiency - 5 / 14) < 0.006:
        return "Right."
    for number, hint in HINTS:
        if abs(efficiency - number) < 0.01 * number:
            return f"Not yet: {efficiency:g}, {hint}."
    return f"Not yet: {efficiency:g}. The second GPU saves 5.2 of the 14.0 s. So how many of them can be divided?"
