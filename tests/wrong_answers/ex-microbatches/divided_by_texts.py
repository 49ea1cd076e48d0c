"""Divides by the number of texts."""

from torch.nn import functional as F


def loss_parts(scores, labels):
    texts = sum(map(len, labels))
    return [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / texts for x, c in zip(scores, labels)]
