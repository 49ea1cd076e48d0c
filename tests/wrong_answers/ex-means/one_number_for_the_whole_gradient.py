"""One number, where each entry of the gradient has its own mean."""


def combine(means, sizes):
    return sum(mean.mean() * size for mean, size in zip(means, sizes) if size > 0) / sum(sizes)
