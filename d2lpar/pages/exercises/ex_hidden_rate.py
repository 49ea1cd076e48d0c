"""The check of the exercise `ex-hidden-rate`."""

from math import isclose


def check_number(rate):
    """What is not right yet of the number, in words, or "Right."."""
    if isclose(rate, 0.2):
        return "Right."
    if isclose(rate, 0.025 / 8):
        return f"Not yet: {rate}? Were the steps on the laptop too short, or too long?"
    if isclose(rate, 0.1) or isclose(rate, 0.4):
        return f"Not yet: {rate}? What was the factor for four devices, in the output above?"
    return f"Not yet: {rate}? How many times too long is a step when four replicas share one memory?"
