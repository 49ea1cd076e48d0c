"""The signs differ within a half, where the sum comes before ReLU."""

import torch


def example():
    W = torch.ones(4, 2)
    W[1::2] = -1
    return torch.ones(3, 4), W
