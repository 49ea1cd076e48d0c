def undisturbed():
    """The true times."""
    return [(1, 32, 0.100), (8, 32, 0.104)]


def a_little():
    """Only to 1.02."""
    return [(1, 32, 0.102), (8, 32, 0.100)]


def too_much():
    """More than 10%."""
    return [(1, 32, 0.15), (8, 32, 0.104)]


def one_device_only():
    """Two runs that do not tell the two times apart."""
    return [(1, 32, 0.109), (1, 64, 0.19)]


def a_case_of_its_own():
    """Sixteen devices."""
    return [(1, 32, 0.109), (16, 32, 0.095)]


def none_at_all():
    """Forgets to return."""


def one_run():
    """Only one."""
    return [(8, 32, 0.1)]


def words():
    """Not a list of runs."""
    return "0.109, 0.095"
