"""Shares seats in a parliament fairly, not work."""


def split_by_speed(n, speeds):
    sizes = [0] * len(speeds)
    for _ in range(n):
        claims = [speed / (2 * size + 1) for size, speed in zip(sizes, speeds)]
        sizes[claims.index(max(claims))] += 1
    return sizes
