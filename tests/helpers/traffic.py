"""Theories: which messages a collective sends, in which rounds, and how many bytes each rank sends and receives."""

from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import numpy as np

from d2lpar import collectives

BLOCK_BYTES = 24  # three blocks and more where the package would have one


@contextmanager
def small_blocks(block_bytes=BLOCK_BYTES, cores=3):
    """Several blocks for each of several threads, even on a machine with one core."""
    with mock.patch.multiple(collectives, BLOCK_BYTES=block_bytes, all_cores=lambda: cores):
        yield


class Traffic(NamedTuple):
    """What a meter counts: sizes of the messages of each round (sorted), and of all messages; bytes by rank."""

    rounds: list[list[int]]
    messages: list[int]
    sent: list[int]
    received: list[int]


def nothing(case):
    """For what sums without messages."""
    return Traffic([], [], [0] * case.ranks, [0] * case.ranks)


def naive(case):
    k, size = case.ranks, case.size_bytes
    by_rank = [(k - 1) * size] + [size] * (k - 1)
    return Traffic([[size]] * (2 * (k - 1)), [size] * (2 * (k - 1)), by_rank, by_rank)


def tree(case):
    """Rank r > 0 hangs on the rank whose binary number lacks the last 1 of r's: one message up and one down."""
    k, size = case.ranks, case.size_bytes
    parents = [r & (r - 1) for r in range(1, k)]
    distances = [r & -r for r in range(1, k)]  # 1 in the first round up, 2 in the second, ...
    up = [[size] * distances.count(2**i) for i in range(int(np.ceil(np.log2(k))))]
    by_rank = [(parents.count(r) + (r > 0)) * size for r in range(k)]
    return Traffic(up + up[::-1], [size] * (2 * (k - 1)), by_rank, by_rank)


def reduce_scatter(case):
    """Rank r sends all but chunk r, which stays, and receives all but the one it would have sent first."""
    k, size, chunks = case.ranks, case.size_bytes, case.chunk_bytes
    return Traffic([sorted(chunks)] * (k - 1), sorted(chunks * (k - 1)), [size - chunks[r] for r in range(k)],
                   [size - chunks[r - 1] for r in range(k)])


def all_gather(case):
    """Rank r sends all but chunk r + 1, which the next rank has, and receives all but chunk r."""
    k, size, chunks = case.ranks, case.size_bytes, case.chunk_bytes
    return Traffic([sorted(chunks)] * (k - 1), sorted(chunks * (k - 1)), [size - chunks[(r + 1) % k] for r in range(k)],
                   [size - chunks[r] for r in range(k)])


def ring(case):
    first, second = reduce_scatter(case), all_gather(case)
    return Traffic(first.rounds + second.rounds, sorted(first.messages + second.messages),
                   [a + b for a, b in zip(first.sent, second.sent)],
                   [a + b for a, b in zip(first.received, second.received)])


def blocks(case):
    """The naive sum in no rounds, block by block; where there is nothing, no block."""
    k, size = case.ranks, case.size_bytes
    block = BLOCK_BYTES // case.dtype.itemsize * case.dtype.itemsize
    blocks = [min(block, size - start) for start in range(0, size, block)]
    return Traffic([], sorted(blocks * (2 * (k - 1))), naive(case).sent, naive(case).received)


def all_to_all(case):
    k, size = case.ranks, case.size_bytes
    return Traffic([[size] * k] * (k - 1), [size] * (k * (k - 1)), [(k - 1) * size] * k, [(k - 1) * size] * k)
