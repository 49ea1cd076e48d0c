"""Takes the variances for biased ones."""

from d2lpar.larger_batches.batchnorm import combine_moments


def of_the_whole(counts, means, variances):
    n, mean, squares = combine_moments(counts, means, [c * v for c, v in zip(counts, variances)])
    return mean, squares / n
