"""Right for equal minibatches only: the small one counts as much as a large one."""


def small_rates(lr, sizes):
    return [lr / len(sizes)] * len(sizes)
