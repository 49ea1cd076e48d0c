"""A device without an image makes the mean NaN."""


def batch(k):
    return [1, 0, 1][:k - 1]
