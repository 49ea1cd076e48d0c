"""Raises where the two prices of a byte are equal."""


def ring_from(k, link, common):
    size = (k - 1) * common.alpha_s / (link.beta_s_per_byte - common.beta_s_per_byte)
    return size if size > 0 else float("inf")
