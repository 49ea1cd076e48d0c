def nothing_to_clip():
    """All are short."""
    return [0.5, -0.2, 0.1]


def all_too_long():
    """All are clipped, and all point one way."""
    return [3.0, 2.0, 5.0]


def they_cancel():
    """The clipped mean is zero."""
    return [10.0, -1.0, 0.0]


def the_mean_is_zero():
    """The mean is zero."""
    return [2.0, -1.0, -1.0]


def two_ranks():
    """Only two."""
    return [10.0, -1.0]


def infinite():
    """Not finite."""
    return [float("inf"), -1.0, -1.0]


def not_a_number():
    """NaN."""
    return [float("nan"), -1.0, -1.0]


def words():
    """Not numbers."""
    return ["a", "b", "c"]


def a_single_number():
    """No list."""
    return 5.0


def none_at_all():
    """Forgets to return."""
