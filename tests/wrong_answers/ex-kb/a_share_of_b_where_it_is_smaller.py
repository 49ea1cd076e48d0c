"""The first batch may be full for one device and not for k."""


def epoch_plan(num_examples, b, k):
    return -(-num_examples // (k * b)), b if num_examples >= b else -(-num_examples // k)
