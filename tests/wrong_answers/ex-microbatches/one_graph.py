"""One loss over everything, cut afterwards: the second backward pass finds the graph freed."""

import torch
from torch.nn import functional as F


def loss_parts(scores, labels):
    classes = scores[0].shape[-1]
    x = torch.cat([s.reshape(-1, classes) for s in scores])
    c = torch.cat([c.flatten() for c in labels])
    losses = F.cross_entropy(x, c, ignore_index=-100, reduction="none") / (c != -100).sum()
    return [part.sum() for part in losses.split([c.numel() for c in labels])]
