"""A barrier lets go, it does not push."""


def is_barrier(came_s, left_s):
    return max(left_s) - min(left_s) < 0.1 and min(left_s) >= max(came_s)
