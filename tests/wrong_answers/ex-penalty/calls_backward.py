"""The right number, but gradients are added into w.grad on the way."""


def shard_loss(losses, w, lam, n):
    loss = losses.sum() + lam / 2 * len(losses) * (w ** 2).sum()
    loss.backward(retain_graph=True)
    return loss
