"""The right number, but the penalty pulls at nothing: it has no gradient."""


def shard_loss(losses, w, lam, n):
    return losses.sum() + lam / 2 * len(losses) * (w.detach() ** 2).sum()
