from d2lpar.cost import when_sent
from d2lpar.ddp import assign_buckets


def largest(caps, ready_s, sizes_bytes, k, link):
    """One bucket for all."""
    return max(caps)


def smallest(caps, ready_s, sizes_bytes, k, link):
    """A bucket for each."""
    return min(caps)


def the_first_of_equals(caps, ready_s, sizes_bytes, k, link):
    """In the order given, and not the largest."""
    return min(caps, key=lambda cap: when_sent(assign_buckets(sizes_bytes, cap, cap), ready_s, sizes_bytes, k, link)[-1][1])


def the_first_bucket(caps, ready_s, sizes_bytes, k, link):
    """When the first bucket arrives, not the last."""
    return min(sorted(caps, reverse=True),
               key=lambda cap: when_sent(assign_buckets(sizes_bytes, cap, cap), ready_s, sizes_bytes, k, link)[0][1])


def two_ranks(caps, ready_s, sizes_bytes, k, link):
    """Always on two ranks."""
    return min(sorted(caps, reverse=True),
               key=lambda cap: when_sent(assign_buckets(sizes_bytes, cap, cap), ready_s, sizes_bytes, 2, link)[-1][1])


def default_first(caps, ready_s, sizes_bytes, k, link):
    """The first bucket keeps its own cap."""
    return min(sorted(caps, reverse=True),
               key=lambda cap: when_sent(assign_buckets(sizes_bytes, cap_bytes=cap), ready_s, sizes_bytes, k, link)[-1][1])


def the_time(caps, ready_s, sizes_bytes, k, link):
    """Returns the time instead of the cap."""
    return min(when_sent(assign_buckets(sizes_bytes, cap, cap), ready_s, sizes_bytes, k, link)[-1][1] for cap in caps)


def none_at_all(caps, ready_s, sizes_bytes, k, link):
    """Forgets to return."""
