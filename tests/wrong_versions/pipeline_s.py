def not_divided(work_s, busiest_s, crossing_s, widest_s, micro=1):
    """The times of the whole minibatch are taken for those of a micro-batch."""
    first_s = work_s + 2 * crossing_s
    next_s = max(busiest_s / 3, widest_s) + max(2 / 3 * busiest_s, widest_s)
    return first_s + (micro - 1) * next_s


def one_way(work_s, busiest_s, crossing_s, widest_s, micro=1):
    """Gradients do not cross the cuts."""
    first_s = work_s + crossing_s
    next_s = max(busiest_s / 3, widest_s) + max(2 / 3 * busiest_s, widest_s)
    return (first_s + (micro - 1) * next_s) / micro


def passes_together(work_s, busiest_s, crossing_s, widest_s, micro=1):
    """The slower of stage and cut is found for both passes together."""
    first_s = work_s + 2 * crossing_s
    return (first_s + (micro - 1) * max(busiest_s, 2 * widest_s)) / micro


def stage_and_cut_are_added(work_s, busiest_s, crossing_s, widest_s, micro=1):
    """A stage waits until what it has computed is sent."""
    first_s = work_s + 2 * crossing_s
    return (first_s + (micro - 1) * (busiest_s + 2 * widest_s)) / micro


def micro_times(work_s, busiest_s, crossing_s, widest_s, micro=1):
    """The first micro-batch is counted twice."""
    first_s = work_s + 2 * crossing_s
    next_s = max(busiest_s / 3, widest_s) + max(2 / 3 * busiest_s, widest_s)
    return (first_s + micro * next_s) / micro
