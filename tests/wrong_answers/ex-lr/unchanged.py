"""Every small step at the full rate: together they go much too far."""


def small_rates(lr, sizes):
    return [lr] * len(sizes)
