def a_layer_left_out_by_both(rank):
    """A layer that nobody uses changes no order."""
    return [0, 1, 3]


def a_layer_twice(rank):
    """A gradient comes once, however often its layer is used."""
    return [0, 1, 1] if rank == 0 else [0, 1, 2]


def another_order_for_both(rank):
    """Both ranks have turned round alike."""
    return [3, 2, 1, 0]


def nothing_on_one_rank(rank):
    """One rank uses no layer at all."""
    return [0] if rank == 0 else []


def one_rank_uses_fewer(rank):
    """One rank waits for ever, and everybody sees it."""
    return [0, 1, 2, 3] if rank == 0 else [0, 1, 3]
