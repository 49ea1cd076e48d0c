"""No rank adds the penalty."""


def shard_loss(losses, w, lam, n):
    return losses.sum()
