"""The last of every rank is left out, as soon as something came twice."""

import torch


def put_together(parts, n):
    k = len(parts)
    together = torch.stack(parts, dim=1)
    return (together if n % k == 0 else together[:-1]).flatten()
