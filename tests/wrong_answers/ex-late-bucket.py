def more_than_there_is():
    """The tensors have more than 100 MB in total."""
    return [200_000_000, 10_000_000]


def one_tensor():
    """One tensor is one bucket."""
    return [100_000_000]


def the_last_layer():
    """The large tensor is the last layer's, whose gradient comes first."""
    return [10_000_000, 90_000_000]


def too_small_to_close():
    """The first bucket is not full, so the large tensor joins it."""
    return [99_000_001, 999_999]
