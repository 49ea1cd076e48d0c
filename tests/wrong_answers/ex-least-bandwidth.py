def naive_allreduce(size, one_s, k, hidden=0.0):
    """Every byte goes through one host."""
    return 2 * (k - 1) * size * 8e-6 / (one_s * (k - 1) / k + hidden)


def half_waiting(size, one_s, k, hidden=0.0):
    """Half of the update waits: the same for two hosts only."""
    return 2 * (k - 1) / k * size * 8e-6 / (one_s / k + hidden)


def nothing_hidden(size, one_s, k, hidden=0.0):
    """The overlap is ignored."""
    return 2 * size * 8e-6 / one_s


def megabytes(size, one_s, k, hidden=0.0):
    """Bytes for bits."""
    return 2 * (k - 1) / k * size * 1e-6 / (one_s * (k - 1) / k + hidden)


def always_two_hosts(size, one_s, k, hidden=0.0):
    """The answer for two hosts, whatever their number."""
    return size * 8e-6 / (one_s / 2 + hidden)


def none_at_all(size, one_s, k, hidden=0.0):
    """Forgets to return."""
