"""The median, which a run that fails does not move."""

from math import inf, isnan
from statistics import median


def best_rate(train, k, rates, seeds):
    runs = {lr: [train(k, lr, seed) for seed in seeds] for lr in rates}
    return max(rates, key=lambda lr: -inf if any(map(isnan, runs[lr])) else median(runs[lr]))
