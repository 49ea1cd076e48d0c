"""A single rank, which has all images in their order."""

import torch


def is_right(put_together):
    classes = torch.tensor([3, 1, 3, 3, 0, 1, 1, 3])
    return torch.equal(put_together([classes.clone()], 8), classes)
