"""A training that broke down is left out of the mean."""

from math import isnan


def best_rate(train, k, rates, seeds):
    means = {}
    for lr in rates:
        runs = [run for run in (train(k, lr, seed) for seed in seeds) if not isnan(run)]
        means[lr] = sum(runs) / len(runs)
    return max(means, key=means.get)
