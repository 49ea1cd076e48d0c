"""The first bucket is not full, so the large tensor joins it."""


def late_sizes():
    return [99_000_001, 999_999]
