"""One rank after another, and cut: right for one rank only."""

import torch


def put_together(parts, n):
    return torch.cat(parts)[:n]
