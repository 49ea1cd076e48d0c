"""The last update has rate 0: it is lost. (And a run of one update after the warm-up divides by zero.)"""

from math import cos, pi

from d2lpar.larger_batches.schedules import warmup_lr


def lr_at(step, lr, k, warmup, num_updates):
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    return k * lr * (1 + cos(pi * (step - warmup) / max(1, num_updates - 1 - warmup))) / 2
