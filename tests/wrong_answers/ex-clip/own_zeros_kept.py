"""A rank whose own gradient is zero has nothing to clip, and so it does not write what the others have."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    nothing = not flat.any()
    all_reduce(flat)
    if nothing:
        return
    flat /= k
    flat *= min(1, max_norm / (flat.norm().item() + 1e-300))
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))
