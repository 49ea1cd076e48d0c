"""The lists get new tensors, and the old ones stay as they were."""

from d2lpar.sums.collectives import allreduce_naive


def allreduce_spread(device_tensors):
    for i in range(len(device_tensors[0])):
        copies = [tensors[i].clone() for tensors in device_tensors]
        allreduce_naive(copies)
        for tensors, copy in zip(device_tensors, copies):
            tensors[i] = copy
