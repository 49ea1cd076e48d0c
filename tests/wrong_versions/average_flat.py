def divided_twice(module):
    """`write_means` divides as well."""
    params = trained_params(module)
    flat = flat_gradients(params)
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    write_means(params, flat)


def the_module_is_handed_over(module):
    """`flat_gradients` wants parameters."""
    flat = flat_gradients(module)
    dist.all_reduce(flat)
    write_means(module, flat)


def arguments_in_the_wrong_order(module):
    """The parameters come first."""
    params = trained_params(module)
    flat = flat_gradients(params)
    dist.all_reduce(flat)
    write_means(flat, params)


def nothing_is_written_back(module):
    """The buffer is a copy."""
    flat = flat_gradients(trained_params(module))
    dist.all_reduce(flat)
    flat /= dist.get_world_size()


def one_collective_for_each(module):
    """As before, tensor by tensor."""
    for p in trained_params(module):
        total = gradient_of(p)
        dist.all_reduce(total)
        total /= dist.get_world_size()


def nothing_is_sent(module):
    """The allreduce is forgotten."""
    params = trained_params(module)
    write_means(params, flat_gradients(params))


def frozen_ones_too(module):
    """All parameters instead of those that are trained."""
    params = list(module.parameters())
    flat = flat_gradients(params)
    dist.all_reduce(flat)
    write_means(params, flat)


def a_missing_gradient_is_left_out(module):
    """The buffers of the ranks have different lengths."""
    params = [p for p in module.parameters() if p.grad is not None]
    flat = torch.cat([torch.zeros(0), *(p.grad.flatten() for p in params)])
    dist.all_reduce(flat)
    write_means(params, flat)
