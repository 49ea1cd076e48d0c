def divided_before_the_sum_is_there(order, arrived, works):
    """The wait comes last."""
    for p, work in zip(order, works):
        gradient_of(p).div_(dist.get_world_size())
        work.wait()
    arrived.clear()
    works.clear()


def nobody_waits(order, arrived, works):
    """No wait."""
    for p in order:
        p.grad /= dist.get_world_size()
    arrived.clear()
    works.clear()


def not_divided(order, arrived, works):
    """Sums stay sums."""
    for work in works:
        work.wait()
    arrived.clear()
    works.clear()


def divided_by_two(order, arrived, works):
    """Right for two ranks only."""
    for p, work in zip(order, works):
        work.wait()
        p.grad /= 2
    arrived.clear()
    works.clear()


def nothing_is_emptied(order, arrived, works):
    """The next backward finds everything sent already."""
    for p, work in zip(order, works):
        work.wait()
        p.grad /= dist.get_world_size()


def the_names_are_rebound(order, arrived, works):
    """New objects, of which the caller knows nothing."""
    for p, work in zip(order, works):
        work.wait()
        p.grad /= dist.get_world_size()
    arrived, works = set(), []


def arrived_is_left(order, arrived, works):
    """Only one of the two is emptied."""
    for p, work in zip(order, works):
        work.wait()
        p.grad /= dist.get_world_size()
    works.clear()


def only_the_last_is_waited_for(order, arrived, works):
    """The last work is done, so all are: true of a queue, not of this."""
    works[-1].wait()
    for p in order:
        p.grad /= dist.get_world_size()
    arrived.clear()
    works.clear()


def the_mean_is_not_written_back(order, arrived, works):
    """`p.grad / k` is a new tensor, and `p` only a name."""
    for p, work in zip(order, works):
        work.wait()
        p = p.grad / dist.get_world_size()
    arrived.clear()
    works.clear()


def emptied_too_early(order, arrived, works):
    """Nothing is left to wait for."""
    arrived.clear()
    works.clear()
    for p, work in zip(order, works):
        work.wait()
        p.grad /= dist.get_world_size()


def the_order_is_emptied_too(order, arrived, works):
    """The next backward finds no parameters."""
    for p, work in zip(order, works):
        work.wait()
        gradient_of(p).div_(dist.get_world_size())
    order.clear()
    arrived.clear()
    works.clear()


def paired_with_the_set(order, arrived, works):
    """A set has no order: waits for one gradient and divides a different one."""
    for p, work in zip(arrived, works):
        work.wait()
        p.grad /= dist.get_world_size()
    arrived.clear()
    works.clear()
