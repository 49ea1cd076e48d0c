"""Averages rightly, and then lets PyTorch clip, which adds 1e-6 to the norm."""

import torch
from torch.nn.utils import clip_grad_norm_


def average_and_clip(grads, max_norm, k, all_reduce):
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(flat)
    params = [torch.zeros_like(g, requires_grad=True) for g in grads]
    for p, g, part in zip(params, grads, flat.split([g.numel() for g in grads])):
        p.grad = g.copy_(part.view_as(g) / k)
    clip_grad_norm_(params, max_norm)
