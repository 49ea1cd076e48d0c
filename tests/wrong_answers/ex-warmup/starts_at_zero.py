"""A warm-up from 0, not from the rate of one device."""

from math import cos, pi


def lr_at(step, lr, k, warmup, num_updates):
    if step < warmup:
        return k * lr * step / warmup
    return k * lr * (1 + cos(pi * (step - warmup) / (num_updates - warmup))) / 2
