"""In turn the neighbours differ too much."""


def ms(i):
    return 80.0 * 0.9**i
