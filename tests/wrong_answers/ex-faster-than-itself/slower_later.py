"""Then the second case is the slower one."""


def ms(i):
    return 50.0 if i < 5 else 80.0
