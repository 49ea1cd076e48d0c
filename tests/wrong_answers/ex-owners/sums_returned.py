"""The sums are returned, and the buffers stay as they were."""


def allreduce_spread(device_grads):
    return [sum(buffers) for buffers in zip(*device_grads)]
