"""Right, but into what the ranks have kept."""

from d2lpar.larger_batches.batchnorm import combine_moments


def of_the_whole(counts, means, variances):
    n, mean, squares = combine_moments(counts, means, [max(c - 1, 0) * v for c, v in zip(counts, variances)])
    means[0].copy_(mean)
    variances[0].copy_(squares / (n - 1))
    return means[0], variances[0]
