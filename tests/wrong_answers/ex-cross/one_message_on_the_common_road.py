"""The k messages of a round share the common road: that costs k - 1 of its latencies more, not one."""


def ring_from(k, link, common):
    if link.beta_s_per_byte > common.beta_s_per_byte:
        return common.alpha_s / (link.beta_s_per_byte - common.beta_s_per_byte)
    return float("inf")
