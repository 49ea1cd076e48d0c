"""More than a tenth."""


def spoil(seconds):
    return [*seconds[:-1], 1.2 * seconds[-1]]
