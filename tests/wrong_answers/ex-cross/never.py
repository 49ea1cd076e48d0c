"""There is a size from which on the ring is faster, if the common road is fast enough."""


def ring_from(k, link, common):
    return float("inf")
