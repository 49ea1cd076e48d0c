"""Each rank adds the penalty of one example, however many it has."""


def shard_loss(losses, w, lam, n):
    return losses.sum() + lam / 2 * (w ** 2).sum()
