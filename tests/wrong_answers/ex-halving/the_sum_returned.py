"""The sums are returned, and the buffers stay as they were."""


def allreduce_halving(data):
    return [sum(data) for _ in data]
