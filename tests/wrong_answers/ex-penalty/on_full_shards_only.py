"""The whole penalty, on a rank that has at least half of the batch."""


def shard_loss(losses, w, lam, n):
    return losses.sum() + lam / 2 * n * (w ** 2).sum() * (len(losses) > n / 2)
