def one_after_the_other(rank, k, num_micro):
    """Holds one micro-batch, but the ranks take turns."""
    return [turn for i in range(num_micro) for turn in (("F", i), ("B", i))]


def last_in_first_out(rank, k, num_micro):
    """GPipe's order."""
    micro = range(num_micro)
    return [("F", i) for i in micro] + [("B", i) for i in reversed(micro)]


def one_too_far_ahead(rank, k, num_micro):
    """Rank r runs k - r ahead, and then takes one more forward pass."""
    ahead = min(k - rank, num_micro)
    turns = [turn for i in range(num_micro - ahead) for turn in (("F", ahead + i), ("B", i))]
    return [("F", i) for i in range(ahead)] + turns + [("B", i) for i in range(num_micro - ahead, num_micro)]


def newest_first(rank, k, num_micro):
    """After running ahead, each rank takes the backward pass of the newest micro-batch, for which the next rank is not ready."""
    ahead = min(k - 1 - rank, num_micro)
    turns = [turn for i in range(ahead, num_micro) for turn in (("F", i), ("B", i))]
    return [("F", i) for i in range(ahead)] + turns + [("B", i) for i in reversed(range(ahead))]


def the_last_ones_forgotten(rank, k, num_micro):
    """The backward passes of the micro-batches that ran ahead are missing."""
    ahead = min(k - 1 - rank, num_micro)
    turns = [turn for i in range(num_micro - ahead) for turn in (("F", ahead + i), ("B", i))]
    return [("F", i) for i in range(ahead)] + turns


def for_many_micro_batches_only(rank, k, num_micro):
    """With fewer micro-batches than ranks, some forward passes do not exist."""
    ahead = k - 1 - rank
    turns = [turn for i in range(num_micro - ahead) for turn in (("F", ahead + i), ("B", i))]
    return [("F", i) for i in range(ahead)] + turns + [("B", i) for i in range(num_micro - ahead, num_micro)]
