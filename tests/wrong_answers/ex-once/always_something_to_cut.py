"""Classes come twice, but there is always something to cut, and it is just what repeats the beginning."""

import torch
from torch.utils.data import DistributedSampler


def is_right(put_together):
    classes = torch.tensor([3, 1, 3, 0, 1, 2, 2])
    parts = [classes[list(DistributedSampler(classes, 3, rank, shuffle=False))] for rank in range(3)]
    return torch.equal(put_together(parts, 7), classes)
