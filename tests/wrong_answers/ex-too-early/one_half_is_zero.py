"""Nothing is hidden where one rank has nothing to add."""

import torch


def example():
    W = torch.ones(4, 2)
    W[2:] = 0
    return torch.ones(3, 4), W
