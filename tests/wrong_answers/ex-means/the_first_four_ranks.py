"""Ranks beyond the fourth are forgotten."""


def combine(means, sizes):
    means, sizes = means[:4], sizes[:4]
    return sum(mean * size for mean, size in zip(means, sizes) if size > 0) / sum(sizes)
