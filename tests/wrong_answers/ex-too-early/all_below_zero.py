"""Both ranks agree that nothing passes."""

import torch


def example():
    return torch.ones(3, 4), -torch.ones(4, 2)
