"""Right about half a barrier, and wrong about a whole one."""


def is_barrier(came_s, left_s):
    return False
