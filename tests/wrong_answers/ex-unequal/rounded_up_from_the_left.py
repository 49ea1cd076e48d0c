"""Rounds up from the left, as long as there are examples."""


def split_by_speed(n, speeds):
    sizes, left = [], n
    for speed in speeds:
        sizes.append(min(left, -(-n * speed // sum(speeds))))
        left -= sizes[-1]
    return [int(size) for size in sizes]
