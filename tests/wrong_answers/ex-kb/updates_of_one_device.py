"""The batch is b instead of k * b, and the last one is dropped if it is smaller."""


def epoch_plan(num_examples, b, k):
    return num_examples // b, b
