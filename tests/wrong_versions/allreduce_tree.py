def only_powers_of_two(data):
    """The number of levels is rounded down."""
    k = len(data)
    distances = [2**i for i in range(k.bit_length() - 1)]
    with cut(data, 1) as whole:
        for d in distances:
            exchange(whole, [(r + d, r, 0) for r in range(0, k - d, 2 * d)], add=True)
        for d in reversed(distances):
            exchange(whole, [(r, r + d, 0) for r in range(0, k - d, 2 * d)], add=False)


def the_way_down_is_not_reversed(data):
    """On the way down, neighbours come first."""
    k = len(data)
    distances = [2**i for i in range((k - 1).bit_length())]
    with cut(data, 1) as whole:
        for d in distances:
            exchange(whole, [(r + d, r, 0) for r in range(0, k - d, 2 * d)], add=True)
        for d in distances:
            exchange(whole, [(r, r + d, 0) for r in range(0, k - d, 2 * d)], add=False)


def one_message_in_a_round(data):
    """Each message is a round of its own."""
    k = len(data)
    distances = [2**i for i in range((k - 1).bit_length())]
    with cut(data, 1) as whole:
        for d in distances:
            for r in range(0, k - d, 2 * d):
                exchange(whole, [(r + d, r, 0)], add=True)
        for d in reversed(distances):
            for r in range(0, k - d, 2 * d):
                exchange(whole, [(r, r + d, 0)], add=False)


def a_rank_that_does_not_exist(data):
    """The last pair of an odd number of ranks has no second half."""
    k = len(data)
    distances = [2**i for i in range((k - 1).bit_length())]
    with cut(data, 1) as whole:
        for d in distances:
            exchange(whole, [(r + d, r, 0) for r in range(0, k, 2 * d)], add=True)
        for d in reversed(distances):
            exchange(whole, [(r, r + d, 0) for r in range(0, k, 2 * d)], add=False)


def up_the_tree_only(data):
    """The total does not come down."""
    k = len(data)
    with cut(data, 1) as whole:
        for d in [2**i for i in range((k - 1).bit_length())]:
            exchange(whole, [(r + d, r, 0) for r in range(0, k - d, 2 * d)], add=True)
