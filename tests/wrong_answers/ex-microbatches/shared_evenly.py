"""The whole mean, shared evenly among the parts: only their sum is right."""

import torch
from torch.nn import functional as F


def loss_parts(scores, labels):
    every = torch.cat([x.flatten(0, 1) for x in scores])
    mean = F.cross_entropy(every, torch.cat([c.flatten() for c in labels]))
    return [mean / len(scores) for _ in scores]
