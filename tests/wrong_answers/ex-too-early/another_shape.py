"""Columns and rows changed about."""

import torch


def example():
    X = torch.ones(4, 3)
    X[:, 2:] = -1
    return X, torch.ones(3, 2)
