def always_exchange(few, many):
    """Never waits for a rank."""
    return "exchange"


def always_slowest(few, many):
    """Always waits for a rank."""
    return "slowest"


def more_is_slowest(few, many):
    """Any growth is waiting."""
    return "exchange" if many[1] <= few[1] else "slowest"


def by_difference(few, many):
    """Halfway by difference, not by ratio."""
    return "exchange" if many[1] / few[1] < (1 + many[0] / few[0]) / 2 else "slowest"


def a_fixed_factor(few, many):
    """The batch is always doubled."""
    return "exchange" if many[1] < 1.414 * few[1] else "slowest"


def swapped(few, many):
    """The other way round."""
    return "slowest" if many[1] / few[1] < (many[0] / few[0]) ** 0.5 else "exchange"


def none_at_all(few, many):
    """Forgets to return."""
