"""The mean of the largest shard stands for all."""


def combine(means, sizes):
    return means[max(range(len(sizes)), key=lambda rank: sizes[rank])]
