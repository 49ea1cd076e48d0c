"""Three images are unequal for two devices only."""


def batch(k):
    return [1, 1, 0]
