"""How long a collective takes: seconds predicted from messages and bytes, and the model fitted to a machine.

In the alpha-beta model (Hockney, 1994), a message of m bytes takes alpha + m * beta seconds: alpha, the latency, for
every message, and beta, the inverse of the bandwidth, for every byte. `fit_link` fits both. The closed forms assume a
non-blocking network, in which no two messages of a round share a link. Real networks are non-blocking only in part.

`efficiency_at` needs no model of the links: it takes what an exchange costs from measured steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, log2
from typing import NamedTuple

import numpy as np

from d2lpar.checks import check_counts, is_number, shown


class _Link(NamedTuple):
    alpha_s: float
    beta_s_per_byte: float


class Link(_Link):
    """A link in the alpha-beta model: its latency in seconds, and the seconds that each byte adds.

    Either may be a little below 0 where both were fitted to measurements.

    Raises:
        ValueError: unless both are finite numbers.
    """

    __slots__ = ()

    def __new__(cls, alpha_s: float, beta_s_per_byte: float) -> Link:
        for name, value in (("alpha_s", alpha_s), ("beta_s_per_byte", beta_s_per_byte)):
            if not is_number(value):
                raise ValueError(f"{name} must be a finite number, got {shown(value)}")
        return super().__new__(cls, alpha_s, beta_s_per_byte)


class Published(NamedTuple):
    """A kind of link, with the latency and the bandwidth that NCCL assumes for it when it chooses an algorithm.

    NCCL's protocol Simple sends only the data; LL sends a flag with every four bytes, and waits less.
    """

    link: Link  # with the protocol Simple
    quick: Link  # with the protocol LL
    source: str  # how the bandwidth comes about


# NCCL 2.27.7, src/graph/tuning.cc: hwLat of Ring; the bandwidth of LL is half of Simple's, at most llMaxBws
PUBLISHED = {
    "NVLink 4": Published(Link(3.4e-6, 1 / 370.8e9), Link(0.6e-6, 1 / 141e9), "18 links of 20.6 GB/s"),
    "PCIe 4 x16": Published(Link(5.7e-6, 1 / 24e9), Link(1.0e-6, 1 / 12e9), "16 lanes of 1.5 GB/s"),
    "100 Gb/s network": Published(Link(14.0e-6, 1 / 12e9), Link(2.7e-6, 1 / 6e9), "12 GB/s of 12.5"),
}


def check_measurements(sizes_bytes: Sequence[float], seconds: Sequence[float]) -> None:
    """Raise ValueError unless there are at least two different sizes, and all times are above 0."""
    if len(set(map(float, sizes_bytes))) < 2 or not all(0 < t < inf for t in seconds):
        raise ValueError("fitting a line takes at least two different sizes, and times above 0; got sizes "
                         f"{list(sizes_bytes)} and times {list(seconds)}")


def check_allreduce(size_bytes: float, k: int) -> None:
    """Raise ValueError unless `size_bytes` is finite and not negative, and `k` is a number of devices."""
    if not is_number(size_bytes) or size_bytes < 0:
        raise ValueError(f"size_bytes must be a finite number of at least 0, got {shown(size_bytes)}")
    check_counts(the_number_of_devices=k)


def naive_s(size_bytes, k, link):
    """Seconds for `allreduce_naive` of `size_bytes` on `k` devices. A message costs
    `link.alpha_s`, and each of its bytes adds `link.beta_s_per_byte`.

    Raises:
        ValueError: if the size is negative or not finite, or there is no device.
    """
    check_allreduce(size_bytes, k)  # package only
    return 2 * (k - 1) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def tree_s(size_bytes, k, link):
    """Seconds for `allreduce_tree`; arguments as in `naive_s`.

    Raises:
        ValueError: if the size is negative or not finite, or there is no device.
    """
    check_allreduce(size_bytes, k)  # package only
    return 2 * ceil(log2(k)) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def ring_s(size_bytes, k, link):
    """Seconds for `allreduce_ring`, in equal chunks; arguments as in `naive_s`.

    Raises:
        ValueError: if the size is negative or not finite, or there is no device.
    """
    check_allreduce(size_bytes, k)  # package only
    return 2 * (k - 1) * (link.alpha_s + size_bytes / k * link.beta_s_per_byte)


def rounds_s(rounds, link, common=Link(0.0, 0.0)):
    """Seconds for rounds as a meter counts them: `rounds[i]` lists the messages' bytes.
    A round waits for its longest message, or until the bus `common` has carried all.

    Each further message of a round costs the bus's latency as well.
    """
    seconds = 0.0
    for sizes in rounds:
        alone_s = max(sizes) * link.beta_s_per_byte
        together_s = sum(sizes) * common.beta_s_per_byte
        seconds += link.alpha_s + (len(sizes) - 1) * common.alpha_s
        seconds += max(alone_s, together_s)
    return seconds


def fit_link(sizes_bytes, seconds):
    """The `Link` with the smallest sum of squared relative errors for messages of these
    sizes that took these times.

    Raises:
        ValueError: if there are fewer than two different sizes, or if a time is not above 0.
    """
    check_measurements(sizes_bytes, seconds)  # package only
    m, t = np.asarray(sizes_bytes, float), np.asarray(seconds, float)
    terms = np.stack([1 / t, m / t], axis=1)  # (alpha + m * beta) / t should be 1
    alpha_s, beta_s_per_byte = np.linalg.lstsq(terms, np.ones(len(t)), rcond=None)[0]
    return Link(float(alpha_s), float(beta_s_per_byte))


def check_power_of_two(*counts: int) -> None:
    """Raise ValueError unless each number of devices is 1, 2, 4, 8 and so on."""
    for count in counts:
        if count < 1 or count & (count - 1):
            raise ValueError(f"recursive halving needs numbers of devices that are a power of two, got {count}")


def check_nodes(k: int, per_node: int) -> None:
    """Raise ValueError unless `k` devices fill nodes of `per_node`, both powers of two."""
    check_power_of_two(k, per_node)
    if per_node > k:
        raise ValueError(f"a node can have at most all {k} devices, got {per_node} per node")


def halving_s(size_bytes, k, link):
    """Seconds for recursive halving and doubling on `k` devices, a power of two.

    Source: Rabenseifner, 2004.
    """
    check_power_of_two(k)  # package only
    latency_s = 2 * ceil(log2(k)) * link.alpha_s
    return latency_s + 2 * (k - 1) / k * size_bytes * link.beta_s_per_byte


def double_tree_s(size_bytes, k, link, pieces):
    """Seconds for a double binary tree, with each half of the buffer in `pieces`.
    This is an upper bound: depending on `k`, it may take a few rounds less.

    Source: Sanders, Speck and Träff, 2009.
    """
    rounds = 4 * (ceil(log2(k)) + pieces - 1) if k > 1 else 0
    return rounds * (link.alpha_s + size_bytes / (2 * pieces) * link.beta_s_per_byte)


def hierarchical_ring_s(size_bytes, k, per_node, inside, between):
    """Seconds for a hierarchical ring: inside nodes, between nodes, and back."""
    check_nodes(k, per_node)  # package only
    share, nodes = size_bytes / per_node, k / per_node
    near_s = (per_node - 1) * (inside.alpha_s + share * inside.beta_s_per_byte)
    far_s = (nodes - 1) * (between.alpha_s + share / nodes * between.beta_s_per_byte)
    return 2 * (near_s + far_s)


def hierarchical_halving_s(size_bytes, k, per_node, inside, between):
    """Seconds for recursive halving and doubling, with partners in one node first."""
    check_nodes(k, per_node)  # package only
    near, far = ceil(log2(per_node)), ceil(log2(k / per_node))
    share, rest = (per_node - 1) / per_node, 1 / per_node - 1 / k
    near_s = near * inside.alpha_s + share * size_bytes * inside.beta_s_per_byte
    far_s = far * between.alpha_s + rest * size_bytes * between.beta_s_per_byte
    return 2 * (near_s + far_s)


def bus_bandwidth(size_bytes, k, seconds):
    """Bytes per second that each link would carry if `k` devices formed a ring."""
    return size_bytes / seconds * 2 * (k - 1) / k


def when_sent(buckets, ready_s, sizes_bytes, k, link):
    """When the allreduce of each bucket begins and ends, in seconds: one at a time, in
    this order, and each as soon as all its gradients are ready.

    Args:
        buckets: lists of indices of gradients, as `d2lpar.ddp.assign_buckets` returns them.
        ready_s, sizes_bytes: of each gradient, when it is ready, and its size.
    """
    spans, free_s = [], 0.0
    for bucket in buckets:
        begin_s = max([free_s, *(ready_s[i] for i in bucket)])
        free_s = begin_s + ring_s(sum(sizes_bytes[i] for i in bucket), k, link)
        spans.append((begin_s, free_s))
    return spans


ADDED_SPREAD = (0.72, 1.43)  # of 44 published predictions, the middle 80% of added time / predicted: a test says so


def check_runs(batch: float, runs: Sequence[tuple[int, float, float]], factor: float) -> None:
    """Raise ValueError unless all numbers are above 0, and the runs tell an example's time from the added time."""
    for k, each, seconds in runs:
        check_counts(the_number_of_devices=k)
        if not (is_number(each) and each > 0 and is_number(seconds) and seconds > 0):
            raise ValueError("a run has a number of devices, the examples of one device and the seconds of a step, "
                             f"all above 0; got {shown((k, each, seconds))}")
    for name, value in (("batch", batch), ("factor", factor)):
        if not is_number(value) or value <= 0:
            raise ValueError(f"{name} must be a number above 0, got {shown(value)}")
    counts = sorted({k for k, *_ in runs if k > 1})
    if len(counts) > 1:
        raise ValueError(f"all runs on several devices must have the same number of them, got {counts}")
    if len(runs) < 2 or np.linalg.matrix_rank([[each, k > 1] for k, each, _ in runs]) < 2:
        raise ValueError("this takes two runs: one on a single device and one on several, or two on several devices "
                         f"with different numbers of examples; got {runs}")


def check_example_s(example_s: float) -> None:
    """Raise ValueError unless an example takes time."""
    if not example_s > 0:
        raise ValueError("by these runs, more examples take less time. Measure them again, several times each")


def efficiency_at(batch, runs, factor=1):
    """The efficiency to expect with `batch` examples per device. A run is a number of
    devices, the examples of one of them, and the seconds of a step.

    A step takes a time for each example and, on several devices, an added time that does not depend on the examples.
    Both are fitted with the smallest sum of squared relative errors. All runs on several devices must have the same
    number of them, the same links and the same software. With `factor`, the added time is so many times as long; the
    two numbers in `ADDED_SPREAD` give the bounds of an interval.

    Raises:
        ValueError: if the runs do not determine both times, a number is not above 0, or more examples take less time.
    """
    runs = list(runs)  # package only
    check_runs(batch, runs, factor)  # package only
    k, each, seconds = np.array(runs, float).T
    terms = np.stack([each / seconds, (k > 1) / seconds], axis=1)
    example_s, added_s = np.linalg.lstsq(terms, np.ones(len(runs)), rcond=None)[0]
    check_example_s(example_s)  # package only
    return float(batch * example_s / (batch * example_s + factor * added_s))
