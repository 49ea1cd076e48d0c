def not_round(rank, step, k, direction=1):
    """The modulo is forgotten."""
    return rank - direction * step, rank - direction * (step + 1)


def its_own_chunk_first(rank, step, k, direction=1):
    """Steps counted from 0."""
    return (rank - direction * (step - 1)) % k, (rank - direction * step) % k


def the_wrong_way_round(rank, step, k, direction=1):
    """First what arrives."""
    return (rank - direction * (step + 1)) % k, (rank - direction * step) % k


def to_the_left(rank, step, k, direction=1):
    """The signs of the other direction."""
    return (rank + direction * step) % k, (rank + direction * (step + 1)) % k


def the_same_chunk_in_every_step(rank, step, k, direction=1):
    """Right for step 1."""
    return (rank - direction) % k, (rank - 2 * direction) % k


def only_one_direction(rank, step, k, direction=1):
    """The direction is ignored."""
    return (rank - step) % k, (rank - step - 1) % k


def the_neighbours(rank, step, k, direction=1):
    """Ranks instead of chunks."""
    return (rank + direction) % k, (rank - direction) % k


def only_what_is_sent(rank, step, k, direction=1):
    """One number instead of two."""
    return (rank - direction * step) % k
