"""The check of the exercise `ex-unequal`."""


def check(split_by_speed):
    """Return "Right.", or "Not yet: " and what is still wrong with the answer."""
    for n, speeds, best_s in [(512, [100, 300], 1.28), (7, [2, 1], 2.5), (2, [1, 3], 2 / 3), (3, [1, 100], 0.03),
                              (3, [3, 2, 2], 0.5), (6, [5, 5, 1], 0.6), (16, [1, 8, 1], 1.75), (2, [3, 7, 1], 2 / 7)]:
        sizes = list(split_by_speed(n, list(speeds)))
        if len(sizes) != len(speeds) or sum(sizes) != n or any(size not in range(n + 1) for size in sizes):
            return f"Not yet: return {len(speeds)} whole numbers that add up to {n}, not {sizes}."
        end_s = max(size / speed for size, speed in zip(sizes, speeds))
        if end_s > best_s * (1 + 1e-9):
            return f"Not yet: with speeds {speeds}, {sizes} takes {end_s:.3g} s, but {best_s:.3g} s is possible."
    return "Right."
