"""A median does not notice one slow call."""


def ms(i):
    return 500.0 if i == 0 else 50.0
