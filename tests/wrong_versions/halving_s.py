def one_half(size_bytes, k, link):
    """The way back is missing."""
    return log2(k) * link.alpha_s + (k - 1) / k * size_bytes * link.beta_s_per_byte


def rounds_of_a_ring(size_bytes, k, link):
    """It has as many rounds as a ring."""
    return 2 * (k - 1) * link.alpha_s + 2 * (k - 1) / k * size_bytes * link.beta_s_per_byte


def whole_buffers(size_bytes, k, link):
    """It sends the whole buffer in each round, as a tree does."""
    return 2 * log2(k) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def always_a_half(size_bytes, k, link):
    """It sends a half in each round."""
    return 2 * log2(k) * (link.alpha_s + size_bytes / 2 * link.beta_s_per_byte)
