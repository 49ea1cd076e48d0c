def only_the_own_shard(x, ranks):
    """Nothing is exchanged."""
    return moments(x)


def three_exchanges(x, ranks):
    """Each number has an exchange of its own."""
    count, mean, squares = moments(x)
    counts = [round(c.item()) for c in all_gather_vectors(mean.new_tensor([count]), ranks)]
    return combine_moments(counts, all_gather_vectors(mean, ranks), all_gather_vectors(squares, ranks))


def the_own_count_for_all(x, ranks):
    """Each rank takes its own count for that of all."""
    count, mean, squares = moments(x)
    parts = all_gather_vectors(torch.cat([mean, squares]), ranks)
    means, squares = zip(*[part.chunk(2) for part in parts])
    return combine_moments([count] * ranks, means, squares)


def the_vectors_are_added(x, ranks):
    """The sum of means is not a mean."""
    count, mean, squares = moments(x)
    total = sum(all_gather_vectors(torch.cat([mean.new_tensor([count]), mean, squares]), ranks))
    mean, squares = total[1:].chunk(2)
    return round(total[0].item()), mean / ranks, squares


def cut_in_the_wrong_place(x, ranks):
    """The count stays in the part that is cut in two."""
    count, mean, squares = moments(x)
    parts = all_gather_vectors(torch.cat([mean.new_tensor([count]), mean, squares]), ranks)
    means, squares = zip(*[part.chunk(2) for part in parts])
    return combine_moments([round(part[0].item()) for part in parts], means, squares)


def an_empty_shard_stays_away(x, ranks):
    """A rank without examples does not take part in the exchange."""
    count, mean, squares = moments(x)
    if count == 0:
        return count, mean, squares
    parts = all_gather_vectors(torch.cat([mean.new_tensor([count]), mean, squares]), ranks)
    means, squares = zip(*[part[1:].chunk(2) for part in parts])
    return combine_moments([round(part[0].item()) for part in parts], means, squares)


def the_count_is_on_the_cpu(x, ranks):
    """`torch.tensor` makes a tensor on the CPU."""
    count, mean, squares = moments(x)
    own = torch.cat([torch.tensor([count], dtype=mean.dtype), mean, squares])
    parts = all_gather_vectors(own, ranks)
    means, squares = zip(*[part[1:].chunk(2) for part in parts])
    return combine_moments([round(part[0].item()) for part in parts], means, squares)
