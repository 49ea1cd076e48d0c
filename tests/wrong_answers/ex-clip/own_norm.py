"""The factor is that of the own shard, so the ranks differ."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    factor = min(1, max_norm / flat.norm())
    all_reduce(flat)
    flat *= factor / k
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))
