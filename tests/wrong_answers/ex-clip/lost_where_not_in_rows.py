"""`reshape` of a gradient that does not lie in rows is a copy, and what is written there is lost."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= k
    flat *= min(1, max_norm / (flat.norm().item() + 1e-300))
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.reshape(-1).copy_(part)
