"""One run for each rate."""


def best_rate(train, k, rates, seeds):
    return max(rates, key=lambda lr: train(k, lr, seeds[0]))
