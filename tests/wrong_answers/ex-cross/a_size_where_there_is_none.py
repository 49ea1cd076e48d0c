"""Where the bus is as slow as the link, the ring is never faster."""


def ring_from(k, link, bus):
    return (k - 1) * bus.alpha_s / abs(link.beta_s_per_byte - bus.beta_s_per_byte + 1e-30)
