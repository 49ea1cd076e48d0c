"""The middle of the best and the worst run."""

from math import inf, isnan


def best_rate(train, k, rates, seeds):
    runs = {lr: [train(k, lr, seed) for seed in seeds] for lr in rates}
    return max(rates, key=lambda lr: -inf if any(map(isnan, runs[lr])) else max(runs[lr]) + min(runs[lr]))
