"""A largest time that is shorter lifts the other end."""


def spoil(seconds):
    return [*seconds[:-1], 0.9 * seconds[-1]]
