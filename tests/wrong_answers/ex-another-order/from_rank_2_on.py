"""Two ranks agree, and only a third one goes another way."""


def order_on(rank, sizes):
    names = list(sizes) if rank < 2 else list(sizes)[::-1]
    return sorted(names, key=sizes.get)
