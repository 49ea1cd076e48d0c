"""Everything in the first part, zero for the others: all microbatches are kept at once, and nothing is saved."""

import torch
from torch.nn import functional as F


def loss_parts(scores, labels):
    every = torch.cat([x.flatten(0, 1) for x in scores])
    mean = F.cross_entropy(every, torch.cat([c.flatten() for c in labels]))
    return [mean, *[0 * x.sum() for x in scores[1:]]]
