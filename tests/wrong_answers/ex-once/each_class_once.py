"""Takes away classes that come twice, not images."""

import torch


def put_together(parts, n):
    return torch.stack(parts, dim=1).flatten().unique()[:n]
