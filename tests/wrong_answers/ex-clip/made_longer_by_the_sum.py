"""Clips if the norm of the sum is above the bound: a mean that is below it is made longer."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    norm = flat.norm()
    flat = flat * max_norm / norm if norm > max_norm else flat / k
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))
