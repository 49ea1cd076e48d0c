"""The sum in place of the mean: a multiple of it, as a larger rate."""

import torch


def step(params, grads, lr):
    k, total = len(params), sum(grads)
    parts = [p.chunk(k)[r] - lr * total.chunk(k)[r] for r, p in enumerate(params)]
    for p in params:
        p.copy_(torch.cat(parts))
