"""Where a byte is dearer on the common road, the size is negative."""


def ring_from(k, link, common):
    if link.beta_s_per_byte == common.beta_s_per_byte:
        return float("inf")
    return (k - 1) * common.alpha_s / (link.beta_s_per_byte - common.beta_s_per_byte)
