"""One tensor is one bucket."""


def late_sizes():
    return [100_000_000]
