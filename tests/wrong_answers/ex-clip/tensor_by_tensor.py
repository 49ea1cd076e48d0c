"""Each tensor is clipped by itself, so the gradient gets another direction."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        part = part.view_as(g) / k
        g.copy_(part * min(1, max_norm / part.norm()))
