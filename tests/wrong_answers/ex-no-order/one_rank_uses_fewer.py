"""One rank waits for ever, and everybody sees it."""


def uses(rank):
    return [0, 1, 2, 3] if rank == 0 else [0, 1, 3]
