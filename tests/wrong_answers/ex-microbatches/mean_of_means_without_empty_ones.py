"""A mean of means that leaves a microbatch without labels out."""

from torch.nn import functional as F


def loss_parts(scores, labels):
    counted = sum(bool((c >= 0).any()) for c in labels)
    sums = [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") for x, c in zip(scores, labels)]
    return [s / max(1, int((c >= 0).sum())) / counted for s, c in zip(sums, labels)]
