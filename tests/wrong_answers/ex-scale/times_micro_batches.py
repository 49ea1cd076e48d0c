"""Takes the micro-batches for ranks too."""


def loss_of(losses, rank, counts):
    return losses.sum() * len(counts) * len(counts[rank]) / sum(map(sum, counts))
