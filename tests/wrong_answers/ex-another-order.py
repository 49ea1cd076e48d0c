def any_two(rank, sizes):
    """Swaps the first two, whatever their sizes."""
    names = list(sizes)
    if rank:
        names[:2] = names[1::-1]
    return names


def forgets_one(rank, sizes):
    """Rank 1 leaves out one of two gradients of a size."""
    names = sorted(sizes, key=sizes.get)
    return names[1:] if rank else names


def from_rank_2_on(rank, sizes):
    """Two ranks agree, and only a third one goes another way."""
    names = list(sizes) if rank < 2 else list(sizes)[::-1]
    return sorted(names, key=sizes.get)


def only_neighbours(rank, sizes):
    """Sees equal sizes only where they stand side by side."""
    names = list(sizes)
    for i in range(len(names) - 1):
        if rank and sizes[names[i]] == sizes[names[i + 1]]:
            names[i], names[i + 1] = names[i + 1], names[i]
            break
    return names


def the_same_on_all(rank, sizes):
    """Another order, but the same one on all ranks."""
    return sorted(list(sizes)[::-1], key=sizes.get)
