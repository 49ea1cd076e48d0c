def divided(lr, k):
    """The rate is divided by k, as if the gradients were summed."""
    return lr / k


def the_square_root(lr, k):
    """The other rule."""
    return lr * k ** 0.5


def printed_only(lr, k):
    """A return is missing."""
    k * lr
