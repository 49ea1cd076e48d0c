"""Divides by all places, also by those that were filled up."""

from torch.nn import functional as F


def loss_parts(scores, labels):
    places = sum(c.numel() for c in labels)
    return [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / places for x, c in zip(scores, labels)]
