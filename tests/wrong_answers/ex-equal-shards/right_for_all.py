"""The right function: nothing is broken."""

from d2lpar.larger_batches.batchnorm import combine_moments


def equal_only(counts, means, squares):
    return combine_moments(counts, means, squares)
