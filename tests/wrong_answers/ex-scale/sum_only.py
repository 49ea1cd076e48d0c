"""A sum, never divided."""


def loss_of(losses, rank, counts):
    return losses.sum() * len(counts)
