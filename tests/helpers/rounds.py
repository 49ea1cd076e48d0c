"""Rounds of messages: parts that are easily written and read."""

import torch


def numbers(*ranks):
    """`parts[rank][c]`: a tensor of two equal numbers for each number."""
    return [[torch.full((2,), float(x)) for x in rank] for rank in ranks]


def values(parts):
    assert all(x.unique().numel() == 1 for rank in parts for x in rank)
    return [[x[0].item() for x in rank] for rank in parts]
