"""Does not ask rank 0."""


def is_barrier(came_s, left_s):
    return min(left_s[1:] or left_s) >= max(came_s)
