"""Up instead of down: the loss shows it."""

import torch


def step(params, grads, lr):
    k, mean = len(params), sum(grads) / len(grads)
    parts = [p.chunk(k)[r] + lr * mean.chunk(k)[r] for r, p in enumerate(params)]
    for p in params:
        p.copy_(torch.cat(parts))
