"""Shards of different sizes, but every device has the same accuracy."""


def batch(k):
    return [1] * (k + 1)
