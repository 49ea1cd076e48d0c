"""All the work on one device."""

from d2lpar import allreduce


def allreduce_spread(device_grads):
    for buffers in zip(*device_grads):
        allreduce(list(buffers))
