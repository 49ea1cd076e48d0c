"""What came twice is taken away in front, where it came first."""

import torch


def put_together(parts, n):
    together = torch.stack(parts, dim=1).flatten()
    return together[len(together) - n:]
