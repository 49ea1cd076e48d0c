"""Right again where one shard is empty."""

from d2lpar.larger_batches.batchnorm import combine_moments


def equal_only(counts, means, squares):
    even = [sum(counts) / len(counts)] * len(counts)
    return combine_moments(counts if 0 in counts else even, means, squares)
