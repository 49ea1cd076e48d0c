"""Sizes against the largest instead of against all."""


def small_rates(lr, sizes):
    return [lr * size / max(sizes) for size in sizes]
