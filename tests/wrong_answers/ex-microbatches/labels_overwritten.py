"""The right parts, but the caller's labels are changed."""

from torch.nn import functional as F


def loss_parts(scores, labels):
    count = sum((c != -100).sum() for c in labels)
    parts = [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / count for x, c in zip(scores, labels)]
    for c in labels:
        c[c == -100] = 0
    return parts
