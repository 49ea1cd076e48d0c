"""Right, but it empties the list that it was given."""


def split_by_speed(n, speeds):
    sizes = [0] * len(speeds)
    for _ in range(n):
        ends = [(size + 1) / speed for size, speed in zip(sizes, speeds)]
        sizes[ends.index(min(ends))] += 1
    speeds.clear()
    return sizes
