"""The k messages of a round share the bus: that costs k - 1 of its latencies more, not one."""


def ring_from(k, link, bus):
    if link.beta_s_per_byte > bus.beta_s_per_byte:
        return bus.alpha_s / (link.beta_s_per_byte - bus.beta_s_per_byte)
    return float("inf")
