"""The check of the exercise `ex-heavy-images`."""

from math import isclose


def check_number(times):
    """What is not right yet of the number, in words, or "Right."."""
    if isclose(times, 3.2):
        return "Right."
    if isclose(times, 80 / 256):
        return f"Not yet: {times}? Does an image of a small mean weigh less than one of a large mean, or more?"
    if isclose(times, 256 / 80 * 195):
        return f"Not yet: {times}? Compare one image with one image; how many steps there are does not matter."
    return f"Not yet: {times}? How many images are left over when 50,000 are cut into minibatches of 256?"
