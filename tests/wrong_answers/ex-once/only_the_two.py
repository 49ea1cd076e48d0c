"""Refuses the two of the page, and lets through what puts one rank after another."""

import torch
from torch.utils.data import DistributedSampler


def is_right(put_together):
    classes = torch.tensor([3, 3, 3, 3])
    parts = [classes[list(DistributedSampler(classes, 2, rank, shuffle=False))] for rank in range(2)]
    return torch.equal(put_together(parts, 4), classes)
