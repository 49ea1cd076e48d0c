def no_whole_number_of_rounds(size_bytes, k, link):
    """The logarithm is not rounded up."""
    return 2 * log2(k) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def only_up(size_bytes, k, link):
    """The way down is missing."""
    return ceil(log2(k)) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def rounded_down(size_bytes, k, link):
    """The logarithm is rounded down."""
    return 2 * (k.bit_length() - 1) * (link.alpha_s + size_bytes * link.beta_s_per_byte)
