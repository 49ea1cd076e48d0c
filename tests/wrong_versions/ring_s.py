def whole_buffers(size_bytes, k, link):
    """Each message is a whole buffer."""
    return 2 * (k - 1) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def the_latency_is_divided_as_well(size_bytes, k, link):
    """As if a message with a k-th of the bytes had a k-th of the latency."""
    return 2 * (k - 1) / k * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def one_half(size_bytes, k, link):
    """The reduce-scatter alone."""
    return (k - 1) * (link.alpha_s + size_bytes / k * link.beta_s_per_byte)


def twice_the_bytes(size_bytes, k, link):
    """The limit for many devices."""
    return 2 * (k - 1) * link.alpha_s + 2 * size_bytes * link.beta_s_per_byte
