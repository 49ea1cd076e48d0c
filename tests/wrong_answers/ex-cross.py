def a_size_where_there_is_none(k, link, common):
    """If the shared bus is as slow as the link, the ring is never faster."""
    return (k - 1) * common.alpha_s / abs(link.beta_s_per_byte - common.beta_s_per_byte + 1e-30)


def divided_by_zero(k, link, common):
    """Raises if the link and the shared bus have the same bandwidth."""
    size = (k - 1) * common.alpha_s / (link.beta_s_per_byte - common.beta_s_per_byte)
    return size if size > 0 else float("inf")


def for_two_devices(k, link, common):
    """Each further device makes the round of the ring longer."""
    gain = link.beta_s_per_byte - common.beta_s_per_byte
    return common.alpha_s / gain if gain > 0 and k == 2 else float("inf")


def in_megabytes(k, link, common):
    """The right number in the wrong unit."""
    gain = link.beta_s_per_byte - common.beta_s_per_byte
    return (k - 1) * common.alpha_s / gain / 1e6 if gain > 0 else float("inf")


def in_words(k, link, common):
    """A size with its unit is not a number."""
    gain = link.beta_s_per_byte - common.beta_s_per_byte
    return f"{1e-6 * (k - 1) * common.alpha_s / gain:.1f} MB" if gain > 0 else float("inf")


def never(k, link, common):
    """There is a size above which the ring is faster, if the shared bus is fast enough."""
    return float("inf")


def never_only_at_equal_bandwidth(k, link, common):
    """If the shared bus is slower than the link, the size is negative."""
    if link.beta_s_per_byte == common.beta_s_per_byte:
        return float("inf")
    return (k - 1) * common.alpha_s / (link.beta_s_per_byte - common.beta_s_per_byte)


def nothing_where_it_never_is(k, link, common):
    """Where the ring never is faster, the answer is infinity and not 0."""
    gain = link.beta_s_per_byte - common.beta_s_per_byte
    return max(0.0, (k - 1) * common.alpha_s / gain) if gain else 0.0


def one_message_on_the_shared_bus(k, link, common):
    """The k messages of a round share the bus, which adds k - 1 of its latencies, not one."""
    if link.beta_s_per_byte > common.beta_s_per_byte:
        return common.alpha_s / (link.beta_s_per_byte - common.beta_s_per_byte)
    return float("inf")


def the_targets_by_heart(k, link, common):
    """Two constants."""
    return {2: 2.5e6, 8: 17.5e6}.get(k, float("inf"))
