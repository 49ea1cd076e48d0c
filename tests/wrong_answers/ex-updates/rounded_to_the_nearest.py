"""Rounds to the nearest, which may be down."""


def epochs_for_same_updates(num_examples, b, k, num_epochs):
    before = num_epochs * -(-num_examples // b)
    return round(before / -(-num_examples // (k * b)))
