"""Proportional, and the rest where rounding down took most."""


def split_by_speed(n, speeds):
    exact = [n * speed / sum(speeds) for speed in speeds]
    sizes = [int(x) for x in exact]
    for r in sorted(range(len(speeds)), key=lambda r: sizes[r] - exact[r])[:n - sum(sizes)]:
        sizes[r] += 1
    return sizes
