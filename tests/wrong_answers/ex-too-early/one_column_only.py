"""Half of the outputs are right."""

import torch


def example():
    W = torch.ones(4, 2)
    W[2:, 0] = -1
    return torch.ones(3, 4), W
