"""A difference that rounding might explain."""

import torch


def example():
    W = 1e-3 * torch.ones(4, 2)
    W[2:] *= -1
    return torch.ones(3, 4), W
