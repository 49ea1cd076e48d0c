"""Divides by the norm, also where it is zero."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= k
    flat *= min(1, max_norm / flat.norm().item())
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))
