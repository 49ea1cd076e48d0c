"""Fools the race in turn, and not the one in a row."""


def ms(i):
    return 80.0 if i % 2 == 0 else 50.0
