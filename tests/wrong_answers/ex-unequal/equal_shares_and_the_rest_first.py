"""Equal shares, and the first device gets the rest."""


def split_by_speed(n, speeds):
    return [n - n // len(speeds) * (len(speeds) - 1)] + [n // len(speeds)] * (len(speeds) - 1)
