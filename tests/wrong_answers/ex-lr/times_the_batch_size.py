"""The rate grows with b too, by which the gradient is divided already."""


def scaled_lr(lr, b, k):
    return lr * k * b
