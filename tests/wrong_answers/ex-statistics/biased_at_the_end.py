"""Divides by all in the end."""

from d2lpar.larger_batches.batchnorm import combine_moments


def of_the_whole(counts, means, variances):
    n, mean, squares = combine_moments(counts, means, [max(c - 1, 0) * v for c, v in zip(counts, variances)])
    return mean, squares / n
