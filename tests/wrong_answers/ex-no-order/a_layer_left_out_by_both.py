"""A layer that nobody uses changes no order."""


def uses(rank):
    return [0, 1, 3]
