"""Counts the predictions."""

import torch
from torch.utils.data import DistributedSampler


def is_right(put_together):
    for n, k in ((7, 3), (8, 2)):
        classes = torch.tensor([3, 1, 3, 3, 0, 1, 1, 3])[:n]
        parts = [classes[list(DistributedSampler(classes, k, rank, shuffle=False))] for rank in range(k)]
        if len(put_together(parts, n)) != n:
            return False
    return True
