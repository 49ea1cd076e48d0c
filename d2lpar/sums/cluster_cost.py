"""What a sum costs on thousands of devices: closed forms of the sums that libraries have, in the prices of `cost`.

All of them assume a cable of its own between any two devices that send to each other in one round, which real networks
promise in part only. The chapter on the cost of a sum compares them.
"""

from __future__ import annotations

from math import ceil, log2


def check_power_of_two(*counts: int) -> None:
    """Raise ValueError unless each number of devices is 1, 2, 4, 8 and so on."""
    for count in counts:
        if count < 1 or count & (count - 1):
            raise ValueError(f"halving needs a number of devices that is a power of two, got {count}")


def check_nodes(k: int, per_node: int) -> None:
    """Raise ValueError unless `k` devices fill nodes of `per_node`, both powers of two."""
    check_power_of_two(k, per_node)
    if per_node > k:
        raise ValueError(f"a node holds at most all {k} devices, got {per_node} per node")


def halving_s(size_bytes, k, link):
    """Seconds for a sum by halving and doubling, `k` a power of two.

    Source: Rabenseifner, 2004.
    """
    check_power_of_two(k)  # package only
    latency_s = 2 * ceil(log2(k)) * link.alpha_s
    return latency_s + 2 * (k - 1) / k * size_bytes * link.beta_s_per_byte


def double_tree_s(size_bytes, k, link, pieces):
    """Seconds for a sum through two trees, each half of the buffer cut into `pieces`.
    An upper bound: by the shape of the trees it may be a few rounds less.

    Source: Sanders, Speck and Träff, 2009.
    """
    rounds = 4 * (ceil(log2(k)) + pieces - 1) if k > 1 else 0
    return rounds * (link.alpha_s + size_bytes / (2 * pieces) * link.beta_s_per_byte)


def nested_ring_s(size_bytes, k, per_node, inside, between):
    """Seconds around rings: one in each node, then between the nodes, and back."""
    check_nodes(k, per_node)  # package only
    share, nodes = size_bytes / per_node, k / per_node
    near_s = (per_node - 1) * (inside.alpha_s + share * inside.beta_s_per_byte)
    far_s = (nodes - 1) * (between.alpha_s + share / nodes * between.beta_s_per_byte)
    return 2 * (near_s + far_s)


def nested_halving_s(size_bytes, k, per_node, inside, between):
    """Seconds for halving and doubling, first inside nodes, then between them."""
    check_nodes(k, per_node)  # package only
    near, far = ceil(log2(per_node)), ceil(log2(k / per_node))
    share, rest = (per_node - 1) / per_node, 1 / per_node - 1 / k
    near_s = near * inside.alpha_s + share * size_bytes * inside.beta_s_per_byte
    far_s = far * between.alpha_s + rest * size_bytes * between.beta_s_per_byte
    return 2 * (near_s + far_s)


def bus_bandwidth(size_bytes, k, seconds):
    """Bytes per second that each link of `k` devices would carry in a ring."""
    return size_bytes / seconds * 2 * (k - 1) / k


def bucket_sizes(sizes_bytes, first_bytes=2**20, cap_bytes=25 * 2**20):
    """Sizes of PyTorch's buckets for tensors of these sizes, from the last backwards.
    A bucket is closed as soon as it has reached its cap, so it may be larger."""
    filled = []
    for size in reversed(sizes_bytes):
        cap = first_bytes if len(filled) == 1 else cap_bytes
        if not filled or filled[-1] >= cap:
            filled.append(0)
        filled[-1] += size
    return filled
