"""As few bytes, but too many rounds."""

from d2lpar.sums.collectives import allreduce_ring


def allreduce_halving(data):
    allreduce_ring(data)
