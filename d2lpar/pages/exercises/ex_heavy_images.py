"""The check of the exercise `ex-heavy-images`."""

from math import isclose


def check_number(times):
    """What is not right yet of the number, in words, or "Right."."""
    if isclose(times, 3.2):
        return "Right."
    if isclose(times, 80 / 256):
        return f"Not yet: {times}? Which has more weight in its mean: an image of a small minibatch, or of a large one?"
    if isclose(times, 256 / 80 * 195):
        return f"Not yet: {times}? Compare one image with one image; the number of steps does not matter."
    return f"Not yet: {times}? How many images are left over when 50,000 are cut into minibatches of 256?"
