"""The sum is right, but its messages have no rounds."""

from d2lpar.sums.collectives import allreduce_blocks


def allreduce_halving(data):
    allreduce_blocks(data)
