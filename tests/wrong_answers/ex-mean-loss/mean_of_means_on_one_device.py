"""The last batch counts as much as the others, and one device does all."""

from torch import nn


def mean_loss(replicas, devices, data_iter):
    means = [nn.functional.cross_entropy(replicas[0](X), y).item() for X, y in data_iter]
    return sum(means) / len(means)
