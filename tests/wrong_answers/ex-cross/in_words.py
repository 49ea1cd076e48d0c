"""A size with its unit is no number."""


def ring_from(k, link, common):
    gain = link.beta_s_per_byte - common.beta_s_per_byte
    return f"{1e-6 * (k - 1) * common.alpha_s / gain:.1f} MB" if gain > 0 else float("inf")
