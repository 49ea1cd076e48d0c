"""The check of the exercise `ex-eight-gpus`."""

HINTS = [(2.857, "that is the speed-up; divide it by the number of GPUs"),
         (35.7, "that is in percent; give a number between 0 and 1"),
         (4.9, "those are the seconds of an epoch on eight GPUs"),
         (0.795, "that is the efficiency of two GPUs"),
         (0.199, "your eight take as long as two")]


def check_number(efficiency):
    """What is not right yet of the answer, in words, or "Right."."""
    if abs(efficiency - 5 / 14) < 0.006:
        return "Right."
    for number, hint in HINTS:
        if abs(efficiency - number) < 0.01 * number:
            return f"Not yet: {efficiency:g}, {hint}."
    return f"Not yet: {efficiency:g}. The second GPU saves 5.2 of the 14.0 s. So how many can be shared?"
