def pairs(X, y, devices):
    """A pair for each device, not two lists."""
    k = len(devices)
    return [(A.to(d), b.to(d)) for A, b, d in zip(X.tensor_split(k), y.tensor_split(k), devices)]


def chunk(X, y, devices):
    """chunk makes shards of 3, 3 and 1, and of 1 and 1 for four devices."""
    k = len(devices)
    return [A.to(d) for A, d in zip(X.chunk(k), devices)], [b.to(d) for b, d in zip(y.chunk(k), devices)]


def the_rest_is_dropped(X, y, devices):
    """B // k examples each."""
    n = len(X) // len(devices)
    return ([X[r * n:(r + 1) * n].to(d) for r, d in enumerate(devices)],
            [y[r * n:(r + 1) * n].to(d) for r, d in enumerate(devices)])


def the_rest_goes_to_the_last(X, y, devices):
    """B // k examples each, and the last one takes what is left."""
    n, k = len(X) // len(devices), len(devices)
    cuts = [r * n for r in range(k)] + [len(X)]
    return ([X[a:b].to(d) for a, b, d in zip(cuts, cuts[1:], devices)],
            [y[a:b].to(d) for a, b, d in zip(cuts, cuts[1:], devices)])


def stays_where_it_is(X, y, devices):
    """Not sent to the devices."""
    k = len(devices)
    return list(X.tensor_split(k)), list(y.tensor_split(k))


def labels_stay(X, y, devices):
    """Only the images are sent."""
    k = len(devices)
    return [A.to(d) for A, d in zip(X.tensor_split(k), devices)], list(y.tensor_split(k))


def smaller_shards_first(X, y, devices):
    """2, 2 and 3: fair, but not the cut of this page."""
    n, k = len(X), len(devices)
    cuts = [rank * n // k for rank in range(k + 1)]
    return ([X[a:b].to(d) for a, b, d in zip(cuts, cuts[1:], devices)],
            [y[a:b].to(d) for a, b, d in zip(cuts, cuts[1:], devices)])


def dealt_like_cards(X, y, devices):
    """Every k-th example: X in one order, y in another."""
    k = len(devices)
    return [X[r::k].to(d) for r, d in enumerate(devices)], [b.to(d) for b, d in zip(y.tensor_split(k), devices)]
