"""It is the largest that counts."""


def spoil(seconds):
    return [0.9 * seconds[0], *seconds[1:]]
