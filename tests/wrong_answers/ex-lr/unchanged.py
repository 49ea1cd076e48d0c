"""The rate of the small batches."""


def scaled_lr(lr, b, k):
    return lr
