"""The checks of the functions of `d2lpar.collectives` that readers write.

A collective is run with a meter, so a check sees which messages were sent. Sums are compared in whole numbers, for
which the order of the additions does not matter: any order is right.
"""

from collections import Counter
from math import ceil, log2

import torch

from d2lpar.collectives import Meter
from d2lpar.pages.differences import Difference, call, compare, shown
from d2lpar.pages.elsewhere import place
from d2lpar.pages.message_audit import AuditError, audit
from d2lpar.pages.to_write.of_scratch import PRETENDED, TWO


def buffers(k, n=None):
    """k buffers of n values, 2k by default; the digits of a sum show which ranks are in it: 101 has ranks 0 and 2."""
    n = 2 * k if n is None else n
    return [10.0 ** r * (1 + torch.arange(n, dtype=torch.float64) % 3) for r in range(k)]


def digits(x):
    """The values as whole numbers, all of their digits."""
    return str([int(value) for value in x.flatten().tolist()])


def say(k, n=None):
    """What the case is, for the beginning of a sentence."""
    ranks = "one rank" if k == 1 else f"{k} ranks"
    return f"for {ranks} with buffers of {2 * k if n is None else n} values"


def messages_of(yours, words, data):
    """The meter of a run of `yours(data)`; Difference if it raises, or if it returns something."""
    with Meter([x.device for x in data]) as meter:
        found = call(yours, words, data)
    if found is not None:
        raise Difference(f"{words}, your function returns {shown(found)}, but it should return nothing: it changes the "
                         "buffers in place.")
    return meter


def look_at_sums(words, data, start, own_chunk_only):
    """Each rank should hold the sum of all, or of its own chunk of it."""
    k, total = len(data), torch.stack(list(start)).sum(0)
    for rank, x in enumerate(data):
        held, what = [x, total, *start], f"rank {rank} holds"
        if own_chunk_only:
            held, what = [each.tensor_split(k)[rank] for each in held], f"chunk {rank} of rank {rank} is"
        ours, right, *before = held
        if not torch.equal(ours, right):
            raise Difference(f"{words}, {what} {digits(ours)} afterwards, but the sum of all is {digits(right)}: the ranks "
                             f"started with {', '.join(map(digits, before))}.")


def look_at_counts(words, meter, rounds, most, whole):
    """The number of rounds, and the values that the busiest rank sends."""
    if meter.num_rounds != rounds:
        note = (". (`exchange` counts one round for each call that moves something.)" if meter.num_rounds else
                ": nothing was sent with `exchange`.")
        raise Difference(f"{words}, your function takes {meter.num_rounds} rounds, but it should take {rounds}{note}")
    busiest = max(range(len(meter.sent_bytes)), key=meter.sent_bytes.__getitem__)
    sent = meter.sent_bytes[busiest] / whole
    if sent > most + 1e-9:
        raise Difference(f"{words}, rank {busiest} sends {sent:.3g} S, but no rank should send more than {most:.3g} S.")


def look_at_messages_only(yours, words, data):
    """Difference if values travel without a message."""
    try:
        audit(yours, data)
    except AuditError as error:
        raise Difference(f"{words}, {error}: all values should travel with `exchange`.") from None


def check_one(yours, k, n, rounds, most, own_chunk_only=False):
    """A collective on k ranks: what is where afterwards, in how many rounds, and how much was sent."""
    words, start, data = say(k, n), buffers(k, n), buffers(k, n)
    meter = messages_of(yours, words, data)
    look_at_sums(words, data, start, own_chunk_only)
    look_at_counts(words, meter, rounds, most, max(data[0].nbytes, 1))
    return words, meter


def check_two_rows(yours):
    compare(yours, "for three buffers with two rows each",
            lambda: ([torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) * 10**r for r in range(3)],))


def check_allreduce_naive(yours):
    for k in (2, 3, 5, 1):
        words, meter = check_one(yours, k, 3, 2 * (k - 1), max(k - 1, 0))
        for rank, size in enumerate(meter.sent_bytes[1:], 1):
            if size > 3 * 8:
                raise Difference(f"{words}, rank {rank} sends {size / 24:g} S, but only rank 0 should send more than 1 S.")
    check_two_rows(yours)
    look_at_messages_only(yours, say(3, 3), buffers(3, 3))


def check_allreduce_tree(yours):
    for k in (2, 4, 3, 5, 8, 6, 1):
        depth = ceil(log2(k))
        check_one(yours, k, 3, 2 * depth, depth)
    check_two_rows(yours)
    look_at_messages_only(yours, say(5, 3), buffers(5, 3))


def look_at_ring(words, meter, k):
    """Difference unless each rank sends to one other rank, the same in all rounds."""
    for rank in range(k):
        targets = sorted(Counter(m.target for m in meter.messages if m.source == rank))
        if len(targets) > 1:
            raise Difference(f"{words}, rank {rank} sends to the ranks {targets}. In a ring, each rank sends only to its "
                             "right neighbour.")


def check_reduce_scatter(yours):
    for k, n in ((2, 4), (3, 6), (4, 4), (5, 7), (3, 2), (1, 3)):
        words, meter = check_one(yours, k, n, k - 1, (k - 1) * ceil(n / k) / n, own_chunk_only=True)
        look_at_ring(words, meter, k)
    look_at_messages_only(yours, say(3), buffers(3))


def check_all_gather(yours):
    for k, n in ((2, 4), (3, 6), (4, 4), (5, 7), (3, 2), (1, 3)):
        words = f"{say(k, n)}, of which chunk r of rank r should reach all others"
        data, sources = buffers(k, n), buffers(k, n)
        right = torch.cat([x.tensor_split(k)[rank] for rank, x in enumerate(sources)])
        meter = messages_of(yours, words, data)
        for rank, x in enumerate(data):
            if not torch.equal(x, right):
                [c, *_] = [c for c in range(k) if not torch.equal(x.tensor_split(k)[c], right.tensor_split(k)[c])]
                ours, should = (digits(each.tensor_split(k)[c]) for each in (x, right))
                raise Difference(f"{words}, chunk {c} of rank {rank} is {ours} afterwards, but rank {c} started with {should}.")
        look_at_counts(words, meter, k - 1, (k - 1) * ceil(n / k) / n, data[0].nbytes)
        look_at_ring(words, meter, k)
    look_at_messages_only(yours, say(3), buffers(3))


def check_allreduce_ring(yours):
    for k, n in ((2, 4), (3, 6), (4, 4), (5, 7), (1, 3)):
        check_one(yours, k, n, 2 * (k - 1), 2 * (k - 1) * ceil(n / k) / n)
    check_two_rows(yours)
    look_at_messages_only(yours, say(3), buffers(3))


def check_allreduce_flat(yours):
    def lists(*shapes, k=2):
        return [[torch.arange(float(torch.Size(s).numel())).view(s) * (r + 1) + i for i, s in enumerate(shapes)]
                for r in range(k)]

    calls = []

    def add_up(data):
        """An allreduce that takes notes."""
        calls.append([tuple(x.shape) for x in data])
        total = sum(x.to(data[0].device) for x in data)
        for x in data:
            x.copy_(total)

    for words, args, kwargs in (
            ("for one tensor of 3 values on each of 2 devices", ((3,),), {}),
            ("for tensors of 1 and 2 values on each of 2 devices", ((1,), (2,)), {}),
            ("for tensors of the shapes (2, 3), () and (4,) on each of 3 devices", ((2, 3), (), (4,)), {"k": 3})):
        calls.clear()
        compare(yours, words, lambda args=args, kwargs=kwargs: (lists(*args, **kwargs), add_up))
        ours = calls[1:]  # the first call is the package's own
        length, k = sum(torch.Size(s).numel() for s in args), kwargs.get("k", 2)
        if len(ours) != 1:
            raise Difference(f"{words}, the function `allreduce`, which is an argument, is called "
                             f"{len(ours)} times, but it should be called once.")
        if ours[0] != [(length,)] * k:
            raise Difference(f"{words}, `allreduce` gets buffers of the shapes {ours[0]}, but it should get {k} buffers of "
                             f"{length} values, one per device.")
    compare(yours, PRETENDED, lambda: (
        [[place(x, device) for x in tensors] for device, tensors in zip(TWO, lists((3,), (2, 2)))], add_up))
    compare(yours, "for tensors that are not contiguous (they are transposed)",
            lambda: ([[x.t() for x in tensors] for tensors in lists((2, 3), (3, 2))],))
    compare(yours, "without an argument `allreduce`, so with the ring", lambda: (lists((3,), (2, 2), k=3),))
