from d2lpar.batchnorm import combine_moments


def between_forgotten(counts, means, squares):
    """Wrong squares for equal shards, too."""
    return sum(counts), sum(means) / len(means), sum(squares)


def nan_for_unequal(counts, means, squares):
    """Not a number is found out at once."""
    count, mean, squares = combine_moments(counts, means, squares)
    return count, mean if len(set(counts)) == 1 else mean * float("nan"), squares


def of_rank_0(counts, means, squares):
    """Right for one shard only."""
    return counts[0], means[0], squares[0]


def right_for_all(counts, means, squares):
    """The right function: nothing is broken."""
    return combine_moments(counts, means, squares)


def wrong_for_two_sizes_only(counts, means, squares):
    """Right again where one shard is empty."""
    even = [sum(counts) / len(counts)] * len(counts)
    return combine_moments(counts if 0 in counts else even, means, squares)
