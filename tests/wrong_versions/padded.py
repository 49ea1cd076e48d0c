def padded_to_too_much(x):
    """A whole k is added if k divides the length already."""
    k = dist.get_world_size()
    return F.pad(x.detach().flatten(), (0, k - x.numel() % k))


def the_remainder_is_added(x):
    """As many zeros as are left over, instead of as many as are missing."""
    return F.pad(x.detach().flatten(), (0, x.numel() % dist.get_world_size()))


def zeros_at_the_front(x):
    """The pair of `F.pad` the wrong way round."""
    return F.pad(x.detach().flatten(), (-x.numel() % dist.get_world_size(), 0))


def not_flat(x):
    """Each row is padded."""
    return F.pad(x.detach(), (0, -x.numel() % dist.get_world_size()))


def no_copy_where_nothing_is_missing(x):
    """The same memory as x if k divides its length."""
    flat, missing = x.detach().flatten(), -x.numel() % dist.get_world_size()
    return F.pad(flat, (0, missing)) if missing else flat


def with_its_history(x):
    """Not detached."""
    return F.pad(x.flatten(), (0, -x.numel() % dist.get_world_size()))


def zeros_of_the_default_dtype(x):
    """`torch.zeros` makes float32, and everything becomes float32 with it."""
    k = dist.get_world_size()
    flat = torch.zeros(-(-x.numel() // k) * k)
    flat[:x.numel()] = x.detach().flatten()
    return flat


def for_two_ranks(x):
    """Right for two ranks only."""
    return F.pad(x.detach().flatten(), (0, x.numel() % 2))
