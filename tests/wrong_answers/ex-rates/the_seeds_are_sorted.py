"""Right, but it sorts the list that it was given."""


def best_rate(train, k, rates, seeds):
    seeds.sort()
    means = {}
    for lr in rates:
        runs = [train(k, lr, seed) for seed in seeds]
        if all(run == run for run in runs):
            means[lr] = sum(runs) / len(runs)
    return max(means, key=means.get)
