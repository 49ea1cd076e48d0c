"""The check of the exercise `ex-hidden-rate`."""

from math import isclose


def check_number(rate):
    """What is not right yet of the number, in words, or "Right."."""
    if isclose(rate, 0.2):
        return "Right."
    if isclose(rate, 0.025 / 8):
        return f"Not yet: {rate}? Were the steps of the one replica too short, or too long?"
    if isclose(rate, 0.1) or isclose(rate, 0.4):
        return f"Not yet: {rate}? What was the factor for four devices, in the table above?"
    return f"Not yet: {rate}? How much too long is a step of four replicas that are one?"
