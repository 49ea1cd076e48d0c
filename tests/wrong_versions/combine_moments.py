def a_mean_of_means(counts, means, squares):
    """Right for equal shards only."""
    mean = sum(means) / len(means)
    between = sum(n * (m - mean).square() for n, m in zip(counts, means))
    return sum(counts), mean, sum(squares) + between


def only_within(counts, means, squares):
    """What lies between the shards is forgotten."""
    count = sum(counts)
    mean = sum(n * m for n, m in zip(counts, means)) / count
    return count, mean, sum(squares)


def each_shard_counts_once(counts, means, squares):
    """The squared distance of a shard's mean is not multiplied by its count."""
    count = sum(counts)
    mean = sum(n * m for n, m in zip(counts, means)) / count
    return count, mean, sum(squares) + sum((m - mean).square() for m in means)


def the_first_mean_is_changed(counts, means, squares):
    """It adds up in the caller's tensor."""
    count, mean = sum(counts), means[0]
    old = [m.clone() for m in means]
    mean *= counts[0]
    for n, m in zip(counts[1:], old[1:]):
        mean += n * m
    mean /= count
    return count, mean, sum(squares) + sum(n * (m - mean).square() for n, m in zip(counts, old))


def two_shards_only(counts, means, squares):
    """The formula for two pieces, and no further ones."""
    (n, o, *_), (a, b, *_), (s, t, *_) = counts, means, squares
    return n + o, (n * a + o * b) / (n + o), s + t + n * o / (n + o) * (a - b).square()
