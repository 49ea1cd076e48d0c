"""Each further device makes the round of the ring longer."""


def ring_from(k, link, common):
    gain = link.beta_s_per_byte - common.beta_s_per_byte
    return common.alpha_s / gain if gain > 0 and k == 2 else float("inf")
