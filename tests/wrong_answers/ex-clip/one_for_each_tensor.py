"""Right, with a collective for each tensor."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    for g in grads:
        all_reduce(g)
        g /= k
    factor = min(1, max_norm / torch.cat([g.flatten() for g in grads]).norm())
    for g in grads:
        g *= factor
