"""A time is gone."""


def spoil(seconds):
    return seconds[:-1]
