"""The sums are right, but rank 0 makes all of them."""

from d2lpar.sums.collectives import allreduce_naive


def allreduce_spread(device_tensors):
    for replicas in zip(*device_tensors):
        allreduce_naive(replicas)
