"""The list gets other tensors, and those that the parameters hold stay as they were."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    flat /= k
    flat *= min(1, max_norm / flat.norm())
    grads[:] = [part.view_as(g) for g, part in zip(grads, flat.split([g.numel() for g in grads]))]
