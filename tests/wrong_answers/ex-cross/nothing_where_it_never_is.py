"""Where the ring never is faster, the answer is infinity and not 0."""


def ring_from(k, link, common):
    gain = link.beta_s_per_byte - common.beta_s_per_byte
    return max(0.0, (k - 1) * common.alpha_s / gain) if gain else 0.0
