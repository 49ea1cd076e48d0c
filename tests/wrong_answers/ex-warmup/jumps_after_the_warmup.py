"""The wave has begun with update 0, so the rate jumps at the end of the warm-up."""

from math import cos, pi

from d2lpar.larger_batches.schedules import warmup_lr


def lr_at(step, lr, k, warmup, num_updates):
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    return k * lr * (1 + cos(pi * step / num_updates)) / 2
