"""The fastest device does everything."""


def split_by_speed(n, speeds):
    return [n if r == speeds.index(max(speeds)) else 0 for r in range(len(speeds))]
