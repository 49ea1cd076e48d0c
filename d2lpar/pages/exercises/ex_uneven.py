"""The check of the exercise `ex-uneven`."""


def check_number(numbers_sent):
    """What is not right yet of the number, in words, or "Right."."""
    hints = {3: "that is one half; the complete chunks go round, too.",
             4: "that is as many messages; one of the chunks has two numbers.",
             5: "ranks 0 and 2 send five. Which chunks does rank 1 send, and which of them twice?",
             8: "not every chunk leaves it twice: its own goes out only complete."}
    if numbers_sent == 6:
        return "Right."
    return f"Not yet: {numbers_sent:g}? " + hints.get(numbers_sent, "Draw the grid, and follow what leaves rank 1.")
