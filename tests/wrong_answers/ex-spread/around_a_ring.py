"""Fewer bytes and as many rounds, but no tensor has an owner."""

from d2lpar.sums.collectives import allreduce_flat


def allreduce_spread(device_tensors):
    allreduce_flat(device_tensors)
