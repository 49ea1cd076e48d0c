"""Weights the means by places, not by labels that count."""

from torch.nn import functional as F


def loss_parts(scores, labels):
    places = sum(c.numel() for c in labels)
    return [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") * c.numel() / places / max(1, int((c >= 0).sum()))
            for x, c in zip(scores, labels)]
