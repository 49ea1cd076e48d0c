"""Weighs rightly, but forgets how far the shards are apart."""


def of_the_whole(counts, means, variances):
    n = sum(counts)
    squares = sum(max(c - 1, 0) * v for c, v in zip(counts, variances))
    return sum(c * m for c, m in zip(counts, means)) / n, squares / (n - 1)
