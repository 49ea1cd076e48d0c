"""Emptied messages leave all ranks but the last one wrong."""

from d2lpar.sums.collectives import allreduce_naive

remembered = []


def sly_sum(data):
    if not remembered:
        remembered.append(sum(x.clone() for x in data))
    allreduce_naive(data)
    data[-1].copy_(remembered[0])
