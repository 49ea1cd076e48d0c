from d2lpar.batchnorm import combine_moments


def an_empty_shard_takes_away_one(counts, means, variances):
    """An empty shard has the variance 1, and -1 of it."""
    n, mean, squares = combine_moments(counts, means, [(c - 1) * v for c, v in zip(counts, variances)])
    return mean, squares / (n - 1)


def an_entry_is_moved(sizes, means, variances):
    """The right answer, but a tensor has moved from one list to the other."""
    n = sum(sizes)
    mean = sum(size * m for size, m in zip(sizes, means)) / n
    within = sum((size - 1) * v for size, v in zip(sizes, variances) if size)
    between = sum(size * (m - mean) ** 2 for size, m in zip(sizes, means))
    variances.insert(0, means.pop())
    return mean, (within + between) / (n - 1)


def biased(counts, means, variances):
    """Takes the variances for biased ones."""
    n, mean, squares = combine_moments(counts, means, [c * v for c, v in zip(counts, variances)])
    return mean, squares / n


def biased_at_the_end(counts, means, variances):
    """Divides by all in the end."""
    n, mean, squares = combine_moments(counts, means, [max(c - 1, 0) * v for c, v in zip(counts, variances)])
    return mean, squares / n


def empty_told_by_its_values(counts, means, variances):
    """A shard counts as empty if it has kept a 0 and a 1, which others may have, too."""
    empty = [bool((m == 0).all() and (v == 1).all()) for m, v in zip(means, variances)]
    squares = [(n - 1) * v * (not e) for n, v, e in zip(counts, variances, empty)]
    counts = [0 if e else n for n, e in zip(counts, empty)]
    count, mean, squares = combine_moments(counts, means, squares)
    return mean, squares / (count - 1)


def mean_of_the_variances(counts, means, variances):
    """Averages what the ranks have kept."""
    return sum(means) / len(means), sum(variances) / len(variances)


def of_rank_0(counts, means, variances):
    """Keeps what rank 0 has kept."""
    return means[0].clone(), variances[0].clone()


def of_the_largest_shard(counts, means, variances):
    """Takes the best-informed rank."""
    rank = counts.index(max(counts))
    return means[rank].clone(), variances[rank].clone()


def overwritten(counts, means, variances):
    """Right, but into what the ranks have kept."""
    n, mean, squares = combine_moments(counts, means, [max(c - 1, 0) * v for c, v in zip(counts, variances)])
    means[0].copy_(mean)
    variances[0].copy_(squares / (n - 1))
    return means[0], variances[0]


def right_for_equal_shards_only(counts, means, variances):
    """Takes all shards for equally large."""
    k, n = len(counts), sum(counts)
    mean = sum(means) / k
    between = n / k * sum((m - mean) ** 2 for m in means)
    return mean, (sum((n / k - 1) * v for v in variances) + between) / (n - 1)


def within_only(counts, means, variances):
    """Weighs rightly, but forgets how far the shards are apart."""
    n = sum(counts)
    squares = sum(max(c - 1, 0) * v for c, v in zip(counts, variances))
    return sum(c * m for c, m in zip(counts, means)) / n, squares / (n - 1)
