"""Keeps what rank 0 has kept."""


def of_the_whole(counts, means, variances):
    return means[0].clone(), variances[0].clone()
