from d2lpar.cost import naive_s, ring_s


def the_ring(size, k, link):
    """The right formula."""
    return ring_s(size, k, link)


def naive(size, k, link):
    """Twice as much on eight devices, but on two as well."""
    return naive_s(size, k, link)


def a_little_more(size, k, link):
    """Agrees on two devices, and is off by half on eight."""
    return ring_s(size, k, link) * (1 + (k - 2) / 12)


def less(size, k, link):
    """Agrees on two devices, and gives too little on eight."""
    return ring_s(size, k, link) * 2 / k


def bytes_only(size, k, link):
    """Has no latency."""
    return 2 * (k - 1) * size / 2 * link.beta_s_per_byte


def not_a_number(size, k, link):
    """NaN where there are more than two."""
    return ring_s(size, k, link) if k == 2 else float("nan")


def constant(size, k, link):
    """Always one second."""
    return 1.0
