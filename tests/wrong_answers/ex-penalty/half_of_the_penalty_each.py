"""Right for two ranks only."""


def shard_loss(losses, w, lam, n):
    return losses.sum() + lam / 2 * n / 2 * (w ** 2).sum()
