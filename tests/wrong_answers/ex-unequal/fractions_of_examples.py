"""In proportion, but examples cannot be cut."""


def split_by_speed(n, speeds):
    return [n * speed / sum(speeds) for speed in speeds]
