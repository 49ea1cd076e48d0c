"""Another order, but the same one on all ranks."""


def order_on(rank, sizes):
    return sorted(list(sizes)[::-1], key=sizes.get)
