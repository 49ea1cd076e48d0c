def not_divided(x):
    """The sum instead of the mean."""
    flat = padded(x)
    part = flat.new_empty(len(flat) // dist.get_world_size())
    dist.reduce_scatter_tensor(part, flat)
    return part


def divided_by_two(x):
    """Right for two ranks only."""
    flat = padded(x)
    part = flat.new_empty(len(flat) // dist.get_world_size())
    dist.reduce_scatter_tensor(part, flat)
    return part / 2


def not_padded(x):
    """Right if the ranks can divide x evenly."""
    flat, k = x.flatten(), dist.get_world_size()
    part = flat.new_empty(len(flat) // k)
    dist.reduce_scatter_tensor(part, flat)
    return part / k


def a_buffer_of_the_default_dtype(x):
    """`torch.empty` makes float32."""
    flat, k = padded(x), dist.get_world_size()
    part = torch.empty(len(flat) // k)
    dist.reduce_scatter_tensor(part, flat)
    return part / k


def the_whole_mean(x):
    """An allreduce."""
    flat = padded(x)
    dist.all_reduce(flat)
    return flat / dist.get_world_size()


def the_part_of_its_own_tensor(x):
    """Nothing is sent."""
    return padded(x).chunk(dist.get_world_size())[dist.get_rank()]


def a_buffer_of_the_whole_length(x):
    """The buffer is as long as x."""
    flat, k = padded(x), dist.get_world_size()
    part = torch.empty_like(flat)
    dist.reduce_scatter_tensor(part, flat)
    return part / k


def arguments_the_wrong_way_round(x):
    """The output comes first."""
    flat, k = padded(x), dist.get_world_size()
    part = flat.new_empty(len(flat) // k)
    dist.reduce_scatter_tensor(flat, part)
    return part / k


def the_result_of_the_collective(x):
    """A collective returns nothing."""
    flat, k = padded(x), dist.get_world_size()
    part = flat.new_empty(len(flat) // k)
    return dist.reduce_scatter_tensor(part, flat)


def the_next_ranks_part(x):
    """Each rank takes the part of its neighbour."""
    flat, k = padded(x), dist.get_world_size()
    dist.all_reduce(flat)
    return flat.chunk(k)[(dist.get_rank() + 1) % k] / k
