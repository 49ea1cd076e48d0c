"""Leaves the last, smaller batch of an epoch out."""


def epochs_for_same_updates(num_examples, b, k, num_epochs):
    before = num_epochs * max(1, num_examples // b)
    per_epoch = max(1, num_examples // (k * b))
    return -(-before // per_epoch)
