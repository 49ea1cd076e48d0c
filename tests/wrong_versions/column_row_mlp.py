def not_copied(X, W1, b1, W2, b2):
    """The gradient of X is that of this rank's hidden units alone."""
    return Summed.apply(torch.relu(X @ W1 + b1) @ W2) + b2


def not_summed(X, W1, b1, W2, b2):
    """The output is that of this rank's hidden units alone."""
    return torch.relu(Copied.apply(X) @ W1 + b1) @ W2 + b2


def the_bias_on_every_rank(X, W1, b1, W2, b2):
    """b2 is added once for each rank."""
    return Summed.apply(torch.relu(Copied.apply(X) @ W1 + b1) @ W2 + b2)


def the_wrong_way_round(X, W1, b1, W2, b2):
    """Summed at the start, copied at the end."""
    return Copied.apply(torch.relu(Summed.apply(X) @ W1 + b1) @ W2) + b2


def without_relu(X, W1, b1, W2, b2):
    """Two linear layers."""
    return Summed.apply((Copied.apply(X) @ W1 + b1) @ W2) + b2


def without_autograd(X, W1, b1, W2, b2):
    """The sum is a new tensor of which autograd knows nothing."""
    return sum_over_ranks((torch.relu(Copied.apply(X) @ W1 + b1) @ W2).detach()) + b2


def a_sum_for_each_layer(X, W1, b1, W2, b2):
    """The ranks have different hidden units, which must not be summed."""
    hidden = torch.relu(Summed.apply(Copied.apply(X) @ W1 + b1))
    return Summed.apply(hidden @ W2) + b2
