"""The rate of the single best run."""

from math import isnan


def best_rate(train, k, rates, seeds):
    best = {}
    for lr in rates:
        runs = [train(k, lr, seed) for seed in seeds]
        if not any(isnan(run) for run in runs):
            best[lr] = max(runs)
    return max(best, key=best.get)
