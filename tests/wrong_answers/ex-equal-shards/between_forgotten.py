"""Wrong squares for equal shards, too."""

def equal_only(counts, means, squares):
    return sum(counts), sum(means) / len(means), sum(squares)
