"""Takes the last rank for the last to come."""


def is_barrier(came_s, left_s):
    return min(left_s) >= came_s[-1]
