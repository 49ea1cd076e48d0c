def only_forward(batch, flop, flops_per_s):
    """The backward pass is forgotten."""
    return batch * flop / flops_per_s


def twice(batch, flop, flops_per_s):
    """The backward pass is taken for as much work as the forward pass."""
    return 2 * batch * flop / flops_per_s


def one_example(batch, flop, flops_per_s):
    """The batch size is not used."""
    return 3 * flop / flops_per_s
