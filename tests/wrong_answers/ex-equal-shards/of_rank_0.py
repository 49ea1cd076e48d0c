"""Right for one shard only."""

def equal_only(counts, means, squares):
    return counts[0], means[0], squares[0]
