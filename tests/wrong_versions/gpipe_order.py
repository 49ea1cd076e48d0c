def one_after_the_other(num_micro):
    """Only one micro-batch is under way."""
    return [turn for i in range(num_micro) for turn in (("F", i), ("B", i))]


def oldest_first(num_micro):
    """The backward passes begin with micro-batch 0."""
    return [("F", i) for i in range(num_micro)] + [("B", i) for i in range(num_micro)]


def from_1(num_micro):
    """Counted from 1."""
    micro = range(1, num_micro + 1)
    return [("F", i) for i in micro] + [("B", i) for i in reversed(micro)]


def turned_round(num_micro):
    """Number first."""
    micro = range(num_micro)
    return [(i, "F") for i in micro] + [(i, "B") for i in reversed(micro)]
