def in_place(x):
    """x is overwritten."""
    dist.all_reduce(x)
    return x


def nothing_returned(x):
    """The sum is lost."""
    total = x.clone()
    dist.all_reduce(total)


def the_mean(x):
    """Divided by the number of ranks, as a gradient in DDP."""
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total / dist.get_world_size()


def on_rank_0_only(x):
    """A reduce: only rank 0 has the sum."""
    total = x.clone(memory_format=torch.contiguous_format)
    dist.reduce(total, 0)
    return total


def as_it_is_stored(x):
    """all_reduce adds up values as they are stored: by columns on rank 0, and by rows on rank 1."""
    total = x.clone()
    dist.all_reduce(total)
    return total
