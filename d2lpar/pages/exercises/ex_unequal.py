"""The check of the exercise `ex-unequal`."""




def check(split_by_speed):
    """What is not right yet of the answer, in words, or "Right."."""
    cases = [(512, [100, 300]), (10, [1, 1, 1]), (7, [2.0, 1.0]), (3, [1, 100]),
             (1, [5, 4, 3]), (3, [3, 2, 2]), (5, [5, 5, 1]), (6, [5, 5, 1]),
             (2, [1, 3])]
    for n, speeds in cases:
        given = list(speeds)
        sizes = split_by_speed(n, given)
        if given != speeds:
            return f"Not yet: you have changed the list {speeds} of speeds to {given}."
        if sizes is None:
            return "Not yet: split_by_speed returns nothing."
        sizes = list(sizes)
        if len(sizes) != len(speeds) or sum(sizes) != n or min(sizes) < 0:
            return f"Not yet: {n} examples on {len(speeds)} devices, you give {sizes}."
        if any(int(size) != size for size in sizes):
            return f"Not yet: examples come in whole numbers, you give {sizes}."
        # at time t a device has done floor(t * speed) examples
        ends = sorted(size / speed for speed in speeds for size in range(n + 1))
        best = next(t for t in ends if sum(int(t * s + 1e-9) for s in speeds) >= n)
        end = max(size / speed for size, speed in zip(sizes, speeds))
        if not end <= best * (1 + 1e-9):
            return (f"Not yet: {n} examples at speeds {speeds}: with {sizes} the last "
                    f"is done after {end:.3g} s, and {best:.3g} s is possible.")
    return "Right."
