"""There may be fewer examples than one batch holds."""


def epoch_plan(num_examples, b, k):
    return -(-num_examples // (k * b)), b
