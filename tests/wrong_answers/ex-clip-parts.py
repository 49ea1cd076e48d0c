import torch


def own_norm(parts, max_norm, all_reduce):
    """Each rank clips by the norm of its own part."""
    norm = torch.cat([x.flatten() for x in parts]).norm()
    if norm > max_norm:
        for x in parts:
            x *= max_norm / norm


def sum_of_norms(parts, max_norm, all_reduce):
    """Adds up norms instead of squares."""
    norm = torch.cat([x.flatten() for x in parts]).norm()
    all_reduce(norm)
    if norm > max_norm:
        for x in parts:
            x *= max_norm / norm


def square_for_norm(parts, max_norm, all_reduce):
    """Forgets the square root."""
    norm = torch.cat([x.flatten() for x in parts]).square().sum()
    all_reduce(norm)
    if norm > max_norm:
        for x in parts:
            x *= max_norm / norm


def always_scaled(parts, max_norm, all_reduce):
    """A gradient that is shorter than the bound is made longer."""
    square = torch.cat([x.flatten() for x in parts]).square().sum()
    all_reduce(square)
    for x in parts:
        x *= max_norm / square.sqrt()


def one_for_each_tensor(parts, max_norm, all_reduce):
    """Right, but with a collective for each tensor."""
    square = torch.zeros((), dtype=torch.float64)
    for x in parts:
        all_reduce(own := x.square().sum())
        square += own
    if (norm := square.sqrt()) > max_norm:
        for x in parts:
            x *= max_norm / norm


def tensor_by_tensor(parts, max_norm, all_reduce):
    """Each tensor gets a factor of its own, so the direction changes."""
    for x in parts:
        all_reduce(square := x.square().sum())
        if (norm := square.sqrt()) > max_norm:
            x *= max_norm / norm


def mean_of_squares(parts, max_norm, all_reduce):
    """Divides the sum of the squares by the number of tensors."""
    square = torch.cat([x.flatten() for x in parts]).square().sum()
    all_reduce(square)
    if (norm := (square / len(parts)).sqrt()) > max_norm:
        for x in parts:
            x *= max_norm / norm


def returned(parts, max_norm, all_reduce):
    """Returns new tensors, and the parts stay as they were."""
    square = torch.cat([x.flatten() for x in parts]).square().sum()
    all_reduce(square)
    norm = square.sqrt()
    return [x * max_norm / norm if norm > max_norm else x for x in parts]


def as_torch(parts, max_norm, all_reduce):
    """Adds 1e-6 to the norm, as PyTorch does."""
    square = torch.cat([x.flatten() for x in parts]).square().sum()
    all_reduce(square)
    if (factor := max_norm / (square.sqrt() + 1e-6)) < 1:
        for x in parts:
            x *= factor


def all_values_sent(parts, max_norm, all_reduce):
    """All values are sent, although one is enough."""
    flat = torch.cat([x.flatten() for x in parts]).square()
    squares = torch.zeros(18, dtype=flat.dtype)
    squares[:len(flat)] = flat
    all_reduce(squares)
    if (norm := squares.sum().sqrt()) > max_norm:
        for x in parts:
            x *= max_norm / norm
