def only_the_first_half(data):
    """The complete chunks are not passed on."""
    reduce_scatter(data)


def halves_in_the_wrong_order(data):
    """The chunks are gathered before they are complete."""
    all_gather(data)
    reduce_scatter(data)


def the_naive_allreduce(data):
    """Right sums, with all bytes at rank 0."""
    allreduce_naive(data)


def two_reduce_scatters(data):
    """The first half is run twice."""
    reduce_scatter(data)
    reduce_scatter(data)
