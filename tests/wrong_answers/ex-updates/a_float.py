"""A float, which no training takes as a number of epochs."""

from math import ceil


def epochs_for_same_updates(num_examples, b, k, num_epochs):
    return float(ceil(num_epochs * ceil(num_examples / b) / ceil(num_examples / (k * b))))
