"""Nothing is sent, so each rank has only its own shard."""

import torch


def average_and_clip(grads, max_norm, k, all_reduce):
    factor = min(1, max_norm / torch.cat([g.flatten() for g in grads]).norm())
    for g in grads:
        g *= factor
