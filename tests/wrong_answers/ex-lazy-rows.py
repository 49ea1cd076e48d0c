def right(grads):
    """Nothing is broken."""
    mean = sum(grads) / 4
    return [mean.chunk(2)[rank % 2] for rank in range(4)]


def own_gradient(grads):
    """No rank is averaged with any other, and the test notices."""
    return [g.chunk(2)[rank % 2] for rank, g in enumerate(grads)]


def between_rows_only(grads):
    """Without the reduce-scatter, and the test notices."""
    pairs = [grads[0] + grads[2], grads[1] + grads[3]]
    return [pairs[rank % 2].chunk(2)[rank % 2] / 2 for rank in range(4)]


def sum_of_all(grads):
    """The sum instead of the mean, and the test notices."""
    return [sum(grads).chunk(2)[rank % 2] for rank in range(4)]


def swapped_halves(grads):
    """Each rank keeps the other half, and the test notices."""
    mean = sum(grads) / 4
    return [mean.chunk(2)[1 - rank % 2] for rank in range(4)]


def one_row_zero(grads):
    """The second row keeps nothing, and the test notices."""
    mean = sum(grads) / 4
    return [mean.chunk(2)[rank % 2] * (rank < 2) for rank in range(4)]
