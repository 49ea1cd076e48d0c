"""The sums are right, but nobody can say which rank made them."""


def allreduce_spread(device_grads):
    for buffers in zip(*device_grads):
        total = sum(buffers)
        for buffer in buffers:
            buffer.copy_(total)
