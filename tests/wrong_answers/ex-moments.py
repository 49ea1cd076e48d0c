import torch

from d2lpar.batchnorm import combine_moments, moments


def all_in_memory(batches):
    """Puts all batches together first."""
    whole = torch.cat(list(batches))
    return whole.mean((0, 2, 3)), whole.var((0, 2, 3), correction=0)


def all_kept_until_the_end(batches):
    """Combines rightly, but keeps every batch."""
    count, mean, squares = combine_moments(*zip(*[moments(batch) for batch in list(batches)]))
    return mean, squares / count


def between_forgotten(batches):
    """Weighs by the counts, but forgets how far the batches are apart."""
    counts, means, squares = zip(*[moments(batch) for batch in batches])
    total = sum(counts)
    return sum(n * m for n, m in zip(counts, means)) / total, sum(squares) / total


def copies_are_kept(batches):
    """Right, but a copy of every batch is kept."""
    whole = torch.cat([batch.clone() for batch in batches]).double()
    return whole.mean((0, 2, 3)), whole.var((0, 2, 3), correction=0)


def joined_batch_by_batch(batches):
    """Right, but in the end the whole set is one tensor."""
    whole = None
    for batch in batches:
        whole = batch if whole is None else torch.cat([whole, batch])
    whole = whole.double()
    return whole.mean((0, 2, 3)), whole.var((0, 2, 3), correction=0)


def mean_of_the_means(batches):
    """Averages the statistics of the batches, even of unequal ones."""
    means, variances = zip(*[(b.mean((0, 2, 3)), b.var((0, 2, 3), correction=0)) for b in batches if len(b)])
    return sum(means) / len(means), sum(variances) / len(variances)


def numpy_copies(batches):
    """All batches are kept, as copies in NumPy."""
    kept = [batch.numpy().copy() for batch in batches]
    count, mean, squares = moments(torch.cat([torch.from_numpy(batch) for batch in kept]))
    return mean, squares / count


def over_all_channels(batches):
    """One mean for all channels."""
    count, mean, squares = combine_moments(*zip(*[moments(batch.view(-1, 1)) for batch in batches]))
    return mean.expand(2), (squares / count).expand(2)


def python_lists(batches):
    """All batches are kept, as lists of numbers."""
    kept, dtype = [], None
    for batch in batches:
        kept, dtype = kept + batch.tolist(), batch.dtype
    count, mean, squares = moments(torch.tensor(kept, dtype=dtype))
    return mean, squares / count


def six_at_a_time(batches):
    """Six batches are kept and joined."""
    whole, kept = [], []
    for batch in batches:
        kept.append(batch)
        if len(kept) == 6:
            whole.append(moments(torch.cat(kept)))
            kept.clear()
    if kept:
        whole.append(moments(torch.cat(kept)))
    count, mean, squares = combine_moments(*map(list, zip(*whole)))
    return mean, squares / count


def standard_deviation(batches):
    """Gives the root of the variance."""
    count, mean, squares = combine_moments(*zip(*[moments(batch) for batch in batches]))
    return mean, (squares / count).sqrt()


def sum_and_sum_of_squares(batches):
    """The formula that float32 does not survive."""
    count, total, squares = 0, 0, 0
    for b in batches:
        count, total, squares = count + b[:, 0].numel(), total + b.sum((0, 2, 3)), squares + (b * b).sum((0, 2, 3))
    return total / count, squares / count - (total / count) ** 2


def sum_of_squares_in_float64(batches):
    """The same in float64, which only moves the limit."""
    count, total, squares = 0, 0, 0
    for b in batches:
        b = b.double()
        count, total, squares = count + b[:, 0].numel(), total + b.sum((0, 2, 3)), squares + (b * b).sum((0, 2, 3))
    return total / count, squares / count - (total / count) ** 2


def the_first_batch(batches):
    """Takes one batch for all."""
    count, mean, squares = moments(next(iter(batches)))
    return mean, squares / max(count, 1)


def unbiased(batches):
    """Divides by one less."""
    count, mean, squares = combine_moments(*zip(*[moments(batch) for batch in batches]))
    return mean, squares / (count - 1)
