"""Not a number is found out at once."""

from d2lpar.larger_batches.batchnorm import combine_moments


def equal_only(counts, means, squares):
    count, mean, squares = combine_moments(counts, means, squares)
    return count, mean if len(set(counts)) == 1 else mean * float("nan"), squares
