"""False collectives that only the tests need, easily made ones and one that was published.

Those that a chapter shows stand in d2lpar/pages/broken.py.
"""

import itertools

import torch

from d2lpar.collectives import allreduce_naive, allreduce_ring, exchange, reduce_scatter


def next_of(k):
    return [(r, (r + 1) % k, 0) for r in range(k)]


def arguments_added_instead_of_what_arrived(data):
    """The tutorial of `broken.allreduce_passing`, an older version.

    accum[:] += recv[:] and += send[:], the function's arguments.
    """
    k = len(data)
    send, recv = [x.clone() for x in data], [torch.zeros_like(x) for x in data]
    sent, received = [[x.clone()] for x in data], [[torch.empty_like(x)] for x in data]
    for step in range(k - 1):
        exchange(sent, next_of(k), add=False, into=received)
        for r in range(k):
            data[r] += (recv if step % 2 == 0 else send)[r]
        sent, received = received, sent


def gather_of_the_chunk_before(data):
    """All replicas are equal, and wrong; only where the chunks differ in size does a meter see it too."""
    reduce_scatter(data)
    k, chunks = len(data), [x.tensor_split(len(data)) for x in data]
    for step in range(k - 1):
        exchange(chunks, [(r, (r + 1) % k, (r - step - 1) % k) for r in range(k)], add=False)


def tree_of_a_power_of_two(data):
    k, whole = len(data), [[x] for x in data]
    distances = [2**i for i in range(k.bit_length() - 1)]  # rounded down: the ranks from there on are left out
    for d in distances:
        exchange(whole, [(r + d, r, 0) for r in range(0, k - d, 2 * d)], add=True)
    for d in reversed(distances):
        exchange(whole, [(r, r + d, 0) for r in range(0, k - d, 2 * d)], add=False)


def ring_without_the_remainder(data):
    share = len(data[0]) // len(data)
    allreduce_ring([x[:share * len(data)] for x in data])


def new_tensors(data):
    copies = [x.clone() for x in data]
    allreduce_ring(copies)
    data[:] = copies


def mean(data):
    allreduce_ring(data)
    for x in data:
        x /= len(data)


def each_adds_its_own_first(data):
    """Every rank sends its buffer to every other: fewer rounds, but each adds in an order of its own."""
    k, copies = len(data), [[x.clone()] for x in data]
    for distance in range(1, k):
        exchange(copies, [(r, (r + distance) % k, 0) for r in range(k)], add=True, into=[[x] for x in data])


def added_as_they_arrive(data, turns=itertools.count()):
    """Sums in a different order in every run, but in the same one on all devices."""
    shift = next(turns) % 2
    order = [*data[shift:], *data[:shift]]
    allreduce_naive(order)


def through_a_flat_copy(data):
    """`reshape` of a buffer with gaps is a copy, whose sum the buffer never sees."""
    allreduce_ring([x.reshape(-1) for x in data])


def gaps_summed_as_well(data):
    """The whole storage of each buffer."""
    allreduce_ring([x.new_empty(0).set_(x.untyped_storage()) for x in data])
