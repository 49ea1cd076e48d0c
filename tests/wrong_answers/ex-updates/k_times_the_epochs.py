"""The last batch of an epoch may be smaller, so an epoch has not exactly k times fewer updates."""


def epochs_for_same_updates(num_examples, b, k, num_epochs):
    return k * num_epochs
