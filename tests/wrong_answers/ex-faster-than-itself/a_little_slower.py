"""Less than one and a half times."""


def ms(i):
    return 60.0 if i < 5 else 50.0
