def not_divided(module):
    """The sum instead of the mean."""
    for p in trained_params(module):
        dist.all_reduce(gradient_of(p))


def divided_twice(module):
    """Divided before and after."""
    for p in trained_params(module):
        grad = gradient_of(p)
        grad /= dist.get_world_size()
        dist.all_reduce(grad)
        grad /= dist.get_world_size()


def divided_by_two(module):
    """Right for two ranks only."""
    for p in trained_params(module):
        grad = gradient_of(p)
        dist.all_reduce(grad)
        grad /= 2


def a_missing_gradient_is_skipped(module):
    """The rank without a gradient does not call the collective."""
    for p in trained_params(module):
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def a_missing_gradient_is_an_error(module):
    """None is sent."""
    for p in trained_params(module):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def the_result_of_all_reduce_is_used(module):
    """`all_reduce` works in place and returns nothing."""
    for p in trained_params(module):
        p.grad = dist.all_reduce(gradient_of(p)) / dist.get_world_size()


def the_mean_is_not_written_back(module):
    """`total / k` is a new tensor."""
    for p in trained_params(module):
        total = gradient_of(p).clone()
        dist.all_reduce(total)
        total = total / dist.get_world_size()


def frozen_parameters_get_a_gradient(module):
    """All parameters are sent, frozen ones too."""
    for p in module.parameters():
        total = gradient_of(p)
        dist.all_reduce(total)
        total /= dist.get_world_size()


def the_parameters_are_averaged(module):
    """The parameters instead of the gradients."""
    for p in trained_params(module):
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def only_rank_0_has_the_mean(module):
    """`reduce` to rank 0."""
    for p in trained_params(module):
        total = gradient_of(p)
        dist.reduce(total, dst=0)
        total /= dist.get_world_size()


def divided_by_the_ranks_that_have_a_gradient(module):
    """A rank without a gradient does not count."""
    for p in trained_params(module):
        have = torch.tensor(float(p.grad is not None))
        dist.all_reduce(have)
        total = gradient_of(p)
        dist.all_reduce(total)
        total /= max(have.item(), 1)


def divided_without_a_remainder(module):
    """`//` instead of `/`."""
    for p in trained_params(module):
        dist.all_reduce(gradient_of(p))
        p.grad //= dist.get_world_size()
