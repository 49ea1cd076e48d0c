def always_per_step(few, many):
    """Never for an example."""
    return "per step"


def always_per_example(few, many):
    """Always for an example."""
    return "per example"


def any_growth(few, many):
    """Any growth is paid for each example."""
    return "per step" if many[1] <= few[1] else "per example"


def by_difference(few, many):
    """Halfway by difference, not by ratio."""
    return "per step" if many[1] / few[1] < (1 + many[0] / few[0]) / 2 else "per example"


def a_fixed_factor(few, many):
    """The batch is always doubled."""
    return "per step" if many[1] < 1.414 * few[1] else "per example"


def swapped(few, many):
    """The other way round."""
    return "per example" if many[1] / few[1] < (many[0] / few[0]) ** 0.5 else "per step"


def none_at_all(few, many):
    """Forgets to return."""


def a_fifth(few, many):
    """A straight line between small batches, which is wrong for large ones."""
    return "per step" if many[1] / few[1] < 0.2 * many[0] / few[0] + 1.02 else "per example"
