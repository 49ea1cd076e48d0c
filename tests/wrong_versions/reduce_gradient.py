def overwritten(p, part):
    """What was there is lost: wrong with micro-batches."""
    part.grad = mean_part(gradient_of(p))
    p.grad = None


def nothing_to_add_to(p, part):
    """`None += ...`."""
    part.grad += mean_part(gradient_of(p))
    p.grad = None


def the_gradient_stays(p, part):
    """p.grad is not freed."""
    mean = mean_part(gradient_of(p))
    part.grad = mean if part.grad is None else part.grad + mean


def zeroed_but_not_freed(p, part):
    """Zeros take as much memory."""
    mean = mean_part(gradient_of(p))
    part.grad = mean if part.grad is None else part.grad + mean
    p.grad.zero_()


def an_unused_parameter(p, part):
    """p.grad may be None."""
    mean = mean_part(p.grad)
    part.grad = mean if part.grad is None else part.grad + mean
    p.grad = None


def an_unused_parameter_is_skipped(p, part):
    """The others wait."""
    if p.grad is not None:
        mean = mean_part(p.grad)
        part.grad = mean if part.grad is None else part.grad + mean
        p.grad = None


def divided_again(p, part):
    """`mean_part` has divided already."""
    mean = mean_part(gradient_of(p)) / dist.get_world_size()
    part.grad = mean if part.grad is None else part.grad + mean
    p.grad = None


def its_own_gradient(p, part):
    """The part of this rank's gradient, not of the mean."""
    mean = padded(gradient_of(p)).chunk(dist.get_world_size())[dist.get_rank()]
    part.grad = mean if part.grad is None else part.grad + mean
    p.grad = None


def added_to_the_part(p, part):
    """The part itself is changed."""
    part.data += mean_part(gradient_of(p))
    p.grad = None
