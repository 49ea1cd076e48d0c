"""Only the last minibatch may be smaller: the others share what it leaves equally."""


def small_rates(lr, sizes):
    last = lr * sizes[-1] / sum(sizes)
    return [*[(lr - last) / (len(sizes) - 1)] * (len(sizes) - 1), last] if len(sizes) > 1 else [lr]
