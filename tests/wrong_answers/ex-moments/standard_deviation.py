"""Gives the root of the variance."""

from d2lpar.larger_batches.batchnorm import combine_moments, moments


def mean_and_variance(batches):
    count, mean, squares = combine_moments(*zip(*[moments(batch) for batch in batches]))
    return mean, (squares / count).sqrt()
