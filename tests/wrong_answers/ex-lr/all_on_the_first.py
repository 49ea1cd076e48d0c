"""One minibatch does all the work: the rates add up, the gradients are not those of all examples."""


def small_rates(lr, sizes):
    return [lr, *[0.0] * (len(sizes) - 1)]
