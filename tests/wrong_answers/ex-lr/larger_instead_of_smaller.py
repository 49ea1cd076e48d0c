"""The rule the wrong way round."""


def small_rates(lr, sizes):
    return [lr * len(sizes)] * len(sizes)
