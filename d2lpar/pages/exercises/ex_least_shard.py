"""The check of the exercise `ex-least-shard`."""

from math import isclose


def check_number(examples):
    """What is not right yet of the number, in words, or "Right."."""
    if any(isclose(examples, right) for right in (8, 8 * 63 / 64)):  # with 2 S, or exactly
        return "Right."
    if isclose(examples, 4):
        return f"Not yet: {examples}? How many times S does a device send and receive, there and back?"
    if isclose(examples, 2):
        return f"Not yet: {examples}? How many bytes has a parameter in float32?"
    if isclose(examples, 8 * 64):
        return f"Not yet: {examples}? That is the minibatch; what has one device of it?"
    return f"Not yet: {examples}? How long do 2 S take on the cable, and how many examples are that?"
