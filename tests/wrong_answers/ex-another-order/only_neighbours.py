"""Sees equal sizes only where they stand side by side."""


def order_on(rank, sizes):
    names = list(sizes)
    for i in range(len(names) - 1):
        if rank and sizes[names[i]] == sizes[names[i + 1]]:
            names[i], names[i + 1] = names[i + 1], names[i]
            break
    return names
