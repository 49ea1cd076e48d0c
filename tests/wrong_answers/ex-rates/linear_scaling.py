"""k times the smallest rate, whatever the trainings say."""


def best_rate(train, k, rates, seeds):
    for lr in rates:
        for seed in seeds:
            train(k, lr, seed)
    return max(rates)
