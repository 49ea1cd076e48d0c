"""The right parts, but their gradients are added already."""

from torch.nn import functional as F


def loss_parts(scores, labels):
    count = sum((c != -100).sum() for c in labels)
    parts = [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / count for x, c in zip(scores, labels)]
    for part in parts:
        part.backward(retain_graph=True)
    return parts
