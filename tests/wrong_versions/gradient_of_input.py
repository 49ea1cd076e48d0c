def the_statistics_are_constants(grad, normal, factor, count, ranks):
    """As if the mean and the variance did not depend on the input."""
    return grad * along_channels(factor, grad)


def without_an_exchange(grad, normal, factor, count, ranks):
    """Each rank uses its own part of the sums."""
    dims = over_examples(grad)
    mean, slope = (along_channels(t / count, grad) for t in (grad.sum(dims), (grad * normal).sum(dims)))
    return (grad - mean - normal * slope) * along_channels(factor, grad)


def divided_by_the_own_count(grad, normal, factor, count, ranks):
    """The sums are divided by the number of this rank's values."""
    dims = over_examples(grad)
    own = torch.cat([grad.sum(dims), (grad * normal).sum(dims)])
    total = sum(all_gather_vectors(own, ranks)) / max(grad.numel() // grad.shape[1], 1)
    mean, slope = (along_channels(t, grad) for t in total.chunk(2))
    return (grad - mean - normal * slope) * along_channels(factor, grad)


def the_factor_is_forgotten(grad, normal, factor, count, ranks):
    """The last factor of the formula is missing."""
    dims = over_examples(grad)
    own = torch.cat([grad.sum(dims), (grad * normal).sum(dims)])
    mean, slope = (along_channels(t, grad) for t in (sum(all_gather_vectors(own, ranks)) / count).chunk(2))
    return grad - mean - normal * slope


def the_variance_is_a_constant(grad, normal, factor, count, ranks):
    """The second sum is forgotten."""
    mean = along_channels(sum(all_gather_vectors(grad.sum(over_examples(grad)), ranks)) / count, grad)
    return (grad - mean) * along_channels(factor, grad)


def two_exchanges(grad, normal, factor, count, ranks):
    """Each sum has an exchange of its own."""
    dims = over_examples(grad)
    mean = along_channels(sum(all_gather_vectors(grad.sum(dims), ranks)) / count, grad)
    slope = along_channels(sum(all_gather_vectors((grad * normal).sum(dims), ranks)) / count, grad)
    return (grad - mean - normal * slope) * along_channels(factor, grad)


def averaged_over_the_ranks(grad, normal, factor, count, ranks):
    """The sums of all are divided by the number of ranks as well."""
    dims = over_examples(grad)
    own = torch.cat([grad.sum(dims), (grad * normal).sum(dims)])
    mean, slope = (along_channels(t, grad) for t in (sum(all_gather_vectors(own, ranks)) / ranks / count).chunk(2))
    return (grad - mean - normal * slope) * along_channels(factor, grad)


def only_vectors(grad, normal, factor, count, ranks):
    """Right for inputs without pixels."""
    own = torch.cat([grad.sum(0), (grad * normal).sum(0)])
    mean, slope = (sum(all_gather_vectors(own, ranks)) / count).chunk(2)
    return (grad - mean - normal * slope) * factor
