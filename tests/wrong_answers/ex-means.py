def divided_by_the_number_of_shards(means, sizes):
    """The sum is divided by how many shards there are, not by how many examples."""
    return sum(m * s for m, s in zip(means, sizes) if s) / len(sizes)


def empty_shards_make_nan(means, sizes):
    """The mean of an empty shard is nan, and nan * 0 is nan."""
    return sum(m * s for m, s in zip(means, sizes)) / sum(sizes)


def of_the_largest_shard(means, sizes):
    """The mean of the largest shard stands for all."""
    return means[max(range(len(sizes)), key=lambda rank: sizes[rank])]


def right_for_equal_shards_only(means, sizes):
    """The mean of the means, with empty shards left out."""
    there = [mean for mean, size in zip(means, sizes) if size > 0]
    return sum(there) / len(there)


def sum_not_divided(means, sizes):
    """The sum over the whole batch, not its mean."""
    return sum(mean * size for mean, size in zip(means, sizes) if size > 0)
