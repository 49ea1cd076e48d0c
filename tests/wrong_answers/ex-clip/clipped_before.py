"""Each rank clips its own gradient, and the mean of what is left is shorter than it should be."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    norm = torch.cat([g.flatten() for g in grads]).norm()
    flat = torch.cat([g.flatten() for g in grads]) * min(1, max_norm / norm)
    all_reduce(flat)
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g) / k)
