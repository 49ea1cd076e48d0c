"""The sum over the whole batch, not its mean."""


def combine(means, sizes):
    return sum(mean * size for mean, size in zip(means, sizes) if size > 0)
