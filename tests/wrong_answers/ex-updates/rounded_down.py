"""Rounds down, and makes fewer updates than before."""


def epochs_for_same_updates(num_examples, b, k, num_epochs):
    before = num_epochs * -(-num_examples // b)
    return before // -(-num_examples // (k * b))
