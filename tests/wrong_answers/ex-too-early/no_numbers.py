"""NaN differs from everything, and shows nothing."""

import torch


def example():
    return torch.full((3, 4), float("nan")), torch.ones(4, 2)
