def the_padding_stays(part, shape):
    """Right if there is none."""
    flat = part.new_empty(dist.get_world_size() * len(part))
    dist.all_gather_into_tensor(flat, part)
    return flat.view(shape)


def flat_as_it_came(part, shape):
    """No shape."""
    flat = part.new_empty(dist.get_world_size() * len(part))
    dist.all_gather_into_tensor(flat, part)
    return flat[:shape.numel()]


def a_buffer_of_the_default_dtype(part, shape):
    """`torch.empty` makes float32."""
    flat = torch.empty(dist.get_world_size() * len(part))
    dist.all_gather_into_tensor(flat, part)
    return flat[:shape.numel()].view(shape)


def a_buffer_of_that_shape(part, shape):
    """No room for the padding."""
    flat = part.new_empty(shape.numel())
    dist.all_gather_into_tensor(flat, part)
    return flat.view(shape)


def its_own_part_again_and_again(part, shape):
    """Nothing is sent."""
    return part.repeat(dist.get_world_size())[:shape.numel()].view(shape)


def one_tensor_in_a_list(part, shape):
    """The same tensor k times: it holds what came last."""
    parts = [torch.empty_like(part)] * dist.get_world_size()
    dist.all_gather(parts, part)
    return torch.cat(parts)[:shape.numel()].view(shape)


def only_rank_0_gathers(part, shape):
    """The others send nothing."""
    flat = part.new_zeros(dist.get_world_size() * len(part))
    if dist.get_rank() == 0:
        dist.all_gather_into_tensor(flat, part)
    return flat[:shape.numel()].view(shape)


def the_return_is_forgotten(part, shape):
    """No return."""
    flat = part.new_empty(dist.get_world_size() * len(part))
    dist.all_gather_into_tensor(flat, part)
    flat[:shape.numel()].view(shape)
