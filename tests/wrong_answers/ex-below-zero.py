def all_of_them(seconds):
    """All changed alike."""
    return [0.9 * t for t in seconds]


def not_a_number(seconds):
    """Passes for a change of any size."""
    return [*seconds[:-1], float("nan")]


def one_left_out(seconds):
    """A time is gone."""
    return seconds[:-1]


def the_smallest(seconds):
    """It is the largest that counts."""
    return [0.9 * seconds[0], *seconds[1:]]


def the_wrong_way(seconds):
    """A largest time that is shorter lifts the other end."""
    return [*seconds[:-1], 0.9 * seconds[-1]]


def too_much(seconds):
    """More than a tenth."""
    return [*seconds[:-1], 1.2 * seconds[-1]]
