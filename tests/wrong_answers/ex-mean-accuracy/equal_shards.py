"""Shards of one size: the mean of the means is the mean."""


def batch(k):
    return [1] * k + [0] * k
