def the_mean_is_not_noisy(gradients, b):
    """Nothing is subtracted from the signal."""
    mean = gradients.mean(0)
    noise = (gradients - mean).square().sum() / (len(gradients) - 1)
    return b * (noise / mean.square().sum()).item()


def divided_by_the_number_of_pieces(gradients, b):
    """The variance is the biased one."""
    mean = gradients.mean(0)
    noise = (gradients - mean).square().mean(0).sum()
    signal = mean.square().sum() - noise / len(gradients)
    return b * (noise / signal).item() if signal > 0 else inf


def a_negative_batch_size(gradients, b):
    """The signal may be negative."""
    mean = gradients.mean(0)
    noise = (gradients - mean).square().sum() / (len(gradients) - 1)
    return b * (noise / (mean.square().sum() - noise / len(gradients))).item()


def in_pieces(gradients, b):
    """B is counted in pieces, not in examples."""
    mean = gradients.mean(0)
    noise = (gradients - mean).square().sum() / (len(gradients) - 1)
    signal = mean.square().sum() - noise / len(gradients)
    return (noise / signal).item() if signal > 0 else inf


def lengths_instead_of_squares(gradients, b):
    """The ratio of the lengths."""
    mean = gradients.mean(0)
    noise = (gradients - mean).square().sum() / (len(gradients) - 1)
    signal = mean.square().sum() - noise / len(gradients)
    return b * (noise / signal).sqrt().item() if signal > 0 else inf


def value_by_value(gradients, b):
    """The ratio of each value's noise and signal, averaged."""
    mean, noise = gradients.mean(0), gradients.var(0)
    signal = mean.square() - noise / len(gradients)
    return b * (noise / signal).mean().item() if signal.sum() > 0 else inf
