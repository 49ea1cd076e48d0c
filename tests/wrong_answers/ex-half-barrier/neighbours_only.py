"""Each has waited for the next one."""


def is_barrier(came_s, left_s):
    k = len(came_s)
    return all(left_s[r] >= came_s[(r + 1) % k] for r in range(k))
