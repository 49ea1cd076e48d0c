"""Right about the wrong one, and wrong about the right one."""


def is_right(run):
    return False
