"""The cosine alone, from the first update on."""

from math import cos, pi


def lr_at(step, lr, k, warmup, num_updates):
    return k * lr * (1 + cos(pi * step / num_updates)) / 2
