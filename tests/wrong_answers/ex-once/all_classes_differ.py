"""The page's: where no class comes twice, each class once is each image once."""

import torch
from torch.utils.data import DistributedSampler


def is_right(put_together):
    classes = torch.arange(10)
    parts = [classes[list(DistributedSampler(classes, 3, rank, shuffle=False))] for rank in range(3)]
    return torch.equal(put_together(parts, 10), classes)
