"""The right answer, but a tensor has moved from one list to the other."""


def of_the_whole(sizes, means, variances):
    n = sum(sizes)
    mean = sum(size * m for size, m in zip(sizes, means)) / n
    within = sum((size - 1) * v for size, v in zip(sizes, variances) if size)
    between = sum(size * (m - mean) ** 2 for size, m in zip(sizes, means))
    variances.insert(0, means.pop())
    return mean, (within + between) / (n - 1)
