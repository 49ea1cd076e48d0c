def fractions_of_examples(n, speeds):
    """In proportion, but examples cannot be cut."""
    return [n * speed / sum(speeds) for speed in speeds]


def largest_remainder(n, speeds):
    """Proportional, and the rest where rounding down took most."""
    exact = [n * speed / sum(speeds) for speed in speeds]
    sizes = [int(x) for x in exact]
    for r in sorted(range(len(speeds)), key=lambda r: sizes[r] - exact[r])[:n - sum(sizes)]:
        sizes[r] += 1
    return sizes


def proportional_and_the_rest_to_the_fastest(n, speeds):
    """Proportional and rounded down, with all that is left for the fastest device."""
    sizes = [int(n * speed / sum(speeds)) for speed in speeds]
    sizes[speeds.index(max(speeds))] += n - sum(sizes)
    return sizes


def rounded_up_from_the_left(n, speeds):
    """Rounds up from the left, as long as there are examples."""
    sizes, left = [], n
    for speed in speeds:
        sizes.append(min(left, -(-n * speed // sum(speeds))))
        left -= sizes[-1]
    return [int(size) for size in sizes]


def websters_rounding(n, speeds):
    """Shares seats in a parliament fairly, not work."""
    sizes = [0] * len(speeds)
    for _ in range(n):
        claims = [speed / (2 * size + 1) for size, speed in zip(sizes, speeds)]
        sizes[claims.index(max(claims))] += 1
    return sizes
