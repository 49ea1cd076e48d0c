"""Nothing is greater than NaN, so the first that breaks down stays the best."""


def best_rate(train, k, rates, seeds):
    means = {lr: sum(train(k, lr, seed) for seed in seeds) / len(seeds) for lr in rates}
    return max(means, key=means.get)
