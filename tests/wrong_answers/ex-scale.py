def detached(losses, rank, counts):
    """The right value, and no gradient."""
    return losses.detach().sum() * len(counts) / sum(map(sum, counts))


def divided_by_all(losses, rank, counts):
    """The rule of one process, in a script for DDP: a k-th of the gradient."""
    return losses.sum() / sum(map(sum, counts))


def mean_of_means(losses, rank, counts):
    """The mean of each micro-batch, over the number of them."""
    return losses.sum() / max(len(losses), 1) / len(counts[rank])


def mean_of_shard(losses, rank, counts):
    """The mean over the rank's own tokens: right where all ranks have as many."""
    return losses.sum() / max(sum(counts[rank]), 1)


def no_token_no_loss(losses, rank, counts):
    """A micro-batch without a token gives a plain 0, on which backward cannot be called: the other ranks would wait."""
    return losses.sum() * len(counts) / sum(map(sum, counts)) if len(losses) else 0.0


def sum_only(losses, rank, counts):
    """A sum, never divided."""
    return losses.sum() * len(counts)


def times_micro_batches(losses, rank, counts):
    """Takes the micro-batches for ranks too."""
    return losses.sum() * len(counts) * len(counts[rank]) / sum(map(sum, counts))
