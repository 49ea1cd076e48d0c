"""Right about the wrong ones, and wrong about the right one."""


def is_right(put_together):
    return False
