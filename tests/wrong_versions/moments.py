def sums_of_squares(x):
    """The variance comes from the mean of the squares, which loses everything in float32."""
    count, dims = x.numel() // x.shape[1], over_examples(x)
    mean = x.sum(dims) / max(count, 1)
    return count, mean, x.square().sum(dims) - count * mean.square()


def nan_for_an_empty_shard(x):
    """The mean of no values is NaN."""
    count, dims = x.numel() // x.shape[1], over_examples(x)
    mean = x.mean(dims)
    return count, mean, (x - along_channels(mean, x)).square().sum(dims)


def the_number_of_images(x):
    """It counts examples instead of values."""
    count, dims = len(x), over_examples(x)
    mean = x.sum(dims) / max(count, 1)
    return count, mean, (x - along_channels(mean, x)).square().sum(dims)


def a_variance(x):
    """The squared distances are averaged."""
    count, dims = x.numel() // x.shape[1], over_examples(x)
    mean = x.sum(dims) / max(count, 1)
    return count, mean, (x - along_channels(mean, x)).square().sum(dims) / max(count, 1)


def only_over_the_examples(x):
    """The mean is over the first dimension only."""
    mean = x.sum(0) / max(len(x), 1)
    return len(x), mean, (x - mean).square().sum(0)


def changed_in_place(x):
    """The mean is subtracted from the caller's images."""
    count, dims = x.numel() // x.shape[1], over_examples(x)
    mean = x.sum(dims) / max(count, 1)
    x -= along_channels(mean, x)
    return count, mean, x.square().sum(dims)


def nothing_is_returned(x):
    """A return is missing."""
    mean = x.sum(over_examples(x)) / max(x.numel() // x.shape[1], 1)
    (x - along_channels(mean, x)).square().sum(over_examples(x))


def zeros_on_the_cpu(x):
    """The means are collected in a tensor that is always on the CPU."""
    count, mean = x.numel() // x.shape[1], torch.zeros(x.shape[1], dtype=x.dtype)
    for channel in range(x.shape[1] if count else 0):
        mean[channel] = x[:, channel].mean()
    return count, mean, (x - along_channels(mean, x)).square().sum(over_examples(x))
