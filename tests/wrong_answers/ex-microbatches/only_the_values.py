"""Numbers that sum to the mean, without a gradient."""

from torch.nn import functional as F


def loss_parts(scores, labels):
    count = sum((c >= 0).sum() for c in labels)
    return [(F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / count).detach() for x, c in zip(scores, labels)]
