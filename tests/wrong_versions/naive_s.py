def only_one_way(size_bytes, k, link):
    """The total is not sent back."""
    return (k - 1) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def k_messages(size_bytes, k, link):
    """Rank 0 sends to itself, too."""
    return 2 * k * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def one_latency(size_bytes, k, link):
    """The latency is paid once."""
    return link.alpha_s + 2 * (k - 1) * size_bytes * link.beta_s_per_byte


def divided_by_the_time_per_byte(size_bytes, k, link):
    """beta is taken for a bandwidth."""
    return 2 * (k - 1) * (link.alpha_s + size_bytes / link.beta_s_per_byte)
