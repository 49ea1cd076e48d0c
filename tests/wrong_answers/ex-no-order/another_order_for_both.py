"""Both ranks have turned round alike."""


def uses(rank):
    return [3, 2, 1, 0]
