"""The right value, and no gradient."""


def loss_of(losses, rank, counts):
    return losses.detach().sum() * len(counts) / sum(map(sum, counts))
