"""The mean of the losses where the sum is asked for."""


def shard_loss(losses, w, lam, n):
    return losses.mean() + lam / 2 * len(losses) * (w ** 2).sum()
