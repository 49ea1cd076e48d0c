import torch


def all_below_zero():
    """Both ranks agree that nothing passes."""
    return torch.ones(3, 4), -torch.ones(4, 2)


def another_shape():
    """Columns and rows changed about."""
    X = torch.ones(4, 3)
    X[:, 2:] = -1
    return X, torch.ones(3, 2)


def no_numbers():
    """NaN differs from everything, and shows nothing."""
    return torch.full((3, 4), float("nan")), torch.ones(4, 2)


def one_column_only():
    """Half of the outputs are right."""
    W = torch.ones(4, 2)
    W[2:, 0] = -1
    return torch.ones(3, 4), W


def one_half_is_zero():
    """Nothing is hidden where one rank has nothing to add."""
    W = torch.ones(4, 2)
    W[2:] = 0
    return torch.ones(3, 4), W


def signs_within_a_half():
    """The signs differ within a half, where the sum comes before ReLU."""
    W = torch.ones(4, 2)
    W[1::2] = -1
    return torch.ones(3, 4), W


def too_small_to_see():
    """A difference that rounding might explain."""
    W = 1e-3 * torch.ones(4, 2)
    W[2:] *= -1
    return torch.ones(3, 4), W
