"""What a collective costs: seconds predicted from messages and bytes, and the two prices fitted to a machine.

The model is the oldest one that works (Hockney, 1994): a message of n bytes takes alpha + n * beta seconds, alpha for
being a message at all and beta for every byte. `fit_link` finds both; `cluster_cost` asks what follows for thousands of
devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, log2
from typing import NamedTuple

import numpy as np


class Link(NamedTuple):
    """The price of a message: seconds for each message, and seconds for each byte in it."""

    alpha_s: float
    beta_s_per_byte: float


class Published(NamedTuple):
    """A road as NCCL reckons with it: two prices of one message, and what it takes for the bandwidth.

    Its protocol Simple sends the bytes as they are; LL sends a flag with every four, to wait less.
    """

    link: Link  # protocol Simple
    quick: Link  # protocol LL
    source: str


# NCCL 2.27.7, src/graph/tuning.cc: hwLat of Ring, and for LL half of the bandwidth, at most llMaxBws
PUBLISHED = {
    "NVLink 4": Published(Link(3.4e-6, 1 / 370.8e9), Link(0.6e-6, 1 / 141e9), "18 links of 20.6 GB/s"),
    "PCIe 4 x16": Published(Link(5.7e-6, 1 / 24e9), Link(1.0e-6, 1 / 12e9), "16 lanes of 1.5 GB/s"),
    "100 Gb/s network": Published(Link(14.0e-6, 1 / 12e9), Link(2.7e-6, 1 / 6e9), "12 GB/s of 12.5"),
}


def check_measurements(sizes_bytes: Sequence[float], seconds: Sequence[float]) -> None:
    """Raise ValueError unless there are two different sizes at least, and all times are above 0."""
    if len(set(map(float, sizes_bytes))) < 2 or not all(0 < t < inf for t in seconds):
        raise ValueError(f"a line needs two different sizes, and times above 0, got sizes {list(sizes_bytes)} and "
                         f"times {list(seconds)}")


def naive_s(size_bytes, k, link):
    """Seconds for `allreduce_naive` of `size_bytes` on `k` devices."""
    return 2 * (k - 1) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def tree_s(size_bytes, k, link):
    """Seconds for `allreduce_tree`."""
    return 2 * ceil(log2(k)) * (link.alpha_s + size_bytes * link.beta_s_per_byte)


def ring_s(size_bytes, k, link):
    """Seconds for `allreduce_ring`, in equal chunks."""
    return 2 * (k - 1) * (link.alpha_s + size_bytes / k * link.beta_s_per_byte)


def rounds_s(rounds, link, common=Link(0.0, 0.0)):
    """Seconds for rounds as a meter counts them, `rounds[i]` the bytes of each message.
    A round lasts as its longest message, or as the common road needs for all."""
    seconds = 0.0
    for sizes in rounds:
        alone_s = max(sizes) * link.beta_s_per_byte
        together_s = sum(sizes) * common.beta_s_per_byte
        seconds += link.alpha_s + (len(sizes) - 1) * common.alpha_s
        seconds += max(alone_s, together_s)
    return seconds


def fit_link(sizes_bytes, seconds):
    """Alpha and beta that make the squares of the relative errors smallest.

    Raises:
        ValueError: for fewer than two different sizes, or a time that is not above 0.
    """
    check_measurements(sizes_bytes, seconds)  # package only
    n, t = np.asarray(sizes_bytes, float), np.asarray(seconds, float)
    terms = np.stack([1 / t, n / t], axis=1)  # (alpha + n * beta) / t should be 1
    alpha_s, beta_s_per_byte = np.linalg.lstsq(terms, np.ones(len(t)), rcond=None)[0]
    return Link(float(alpha_s), float(beta_s_per_byte))
