"""The ranks take turns, and one of them gets the largest tensor on top of others."""

from d2lpar import allreduce


def allreduce_spread(device_grads):
    for i, buffers in enumerate(zip(*device_grads)):
        allreduce([buffers[i % len(buffers)], *[b for r, b in enumerate(buffers) if r != i % len(buffers)]])
