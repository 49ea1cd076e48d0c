"""There is a size from which on the ring is faster, if the bus is fast enough."""


def ring_from(k, link, bus):
    return float("inf")
