"""The right number, but nothing is left in the lists."""


def combine(means, sizes):
    n, total = sum(sizes), 0
    while sizes:
        mean, size = means.pop(), sizes.pop()
        if size > 0:
            total = total + mean * size
    return total / n
