"""Where the common road is as slow as the link, the ring is never faster."""


def ring_from(k, link, common):
    return (k - 1) * common.alpha_s / abs(link.beta_s_per_byte - common.beta_s_per_byte + 1e-30)
