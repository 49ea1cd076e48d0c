"""Down to the rate of one device, not to 0."""

from math import cos, pi

from d2lpar.larger_batches.schedules import warmup_lr


def lr_at(step, lr, k, warmup, num_updates):
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    wave = (1 + cos(pi * (step - warmup) / (num_updates - warmup))) / 2
    return lr * (1 + (k - 1) * wave)
