"""The right number in the wrong unit."""


def ring_from(k, link, common):
    gain = link.beta_s_per_byte - common.beta_s_per_byte
    return (k - 1) * common.alpha_s / gain / 1e6 if gain > 0 else float("inf")
