"""Proportional and rounded down, with all that is left for the fastest device."""


def split_by_speed(n, speeds):
    sizes = [int(n * speed / sum(speeds)) for speed in speeds]
    sizes[speeds.index(max(speeds))] += n - sum(sizes)
    return sizes
