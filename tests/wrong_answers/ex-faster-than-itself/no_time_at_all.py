"""A call takes more than no time, also on a fast machine."""


def ms(i):
    return 0.0 if i >= 5 else 1.0
