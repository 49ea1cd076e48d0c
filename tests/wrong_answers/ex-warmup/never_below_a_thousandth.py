"""The rate stops at a thousandth, where a long run goes lower."""

from math import cos, pi

from d2lpar import warmup_lr


def lr_at(step, lr, k, warmup, num_updates):
    if step < warmup:
        return warmup_lr(step, lr, k, warmup, num_updates)
    done = (step - warmup) / (num_updates - warmup)
    return max(k * lr * (1 + cos(pi * done)) / 2, lr / 1000)
