"""As many images as the ranks can share evenly, so cutting is never asked for."""

import torch
from torch.utils.data import DistributedSampler


def is_right(put_together):
    classes = torch.tensor([3, 1, 3, 3, 0, 1, 1, 3])
    parts = [classes[list(DistributedSampler(classes, 2, rank, shuffle=False))] for rank in range(2)]
    return torch.equal(put_together(parts, 8), classes)
