"""Passes for a change of any size."""


def spoil(seconds):
    return [*seconds[:-1], float("nan")]
