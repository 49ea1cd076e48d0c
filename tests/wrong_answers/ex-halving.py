import torch

from d2lpar.collectives import allreduce_blocks, allreduce_ring, allreduce_tree, exchange


def _halving(data):
    k = len(data)
    kept = [x.view(-1) for x in data]
    way, distance = [], 1
    while distance < k:
        halves = [x.tensor_split(2) for x in kept]
        upper = [bool(rank & distance) for rank in range(k)]
        exchange(halves, [(r, r ^ distance, int(not upper[r])) for r in range(k)], add=True)
        kept = [half[up] for half, up in zip(halves, upper)]
        way.append((halves, distance, upper))
        distance *= 2
    for halves, distance, upper in reversed(way):
        exchange(halves, [(r, r ^ distance, int(upper[r])) for r in range(k)], add=False)


def behind_the_meters_back(data):
    """Games the count: the messages are the right ones, but carry zeros, and the sum is made without them."""
    _halving([torch.zeros_like(x) for x in data])
    total = sum(data)
    for x in data:
        x.copy_(total)


def four_devices_only(data):
    """Right for four devices, and written down for them: with others this raises."""
    halves = [x.tensor_split(2) for x in data]
    exchange(halves, [(0, 1, 1), (1, 0, 0), (2, 3, 1), (3, 2, 0)], add=True)
    quarters = [half[rank % 2].tensor_split(2) for rank, half in enumerate(halves)]
    exchange(quarters, [(0, 2, 1), (2, 0, 0), (1, 3, 1), (3, 1, 0)], add=True)
    exchange(quarters, [(0, 2, 0), (2, 0, 1), (1, 3, 0), (3, 1, 1)], add=False)
    exchange(halves, [(0, 1, 0), (1, 0, 1), (2, 3, 0), (3, 2, 1)], add=False)


def halves_travel_far(data):
    """Rounds and bytes are right, but the largest messages go half around."""
    k = len(data)
    kept = [x.view(-1) for x in data]
    way, distance = [], k // 2
    while distance:
        halves = [x.tensor_split(2) for x in kept]
        upper = [bool(rank & distance) for rank in range(k)]
        exchange(halves, [(r, r ^ distance, int(not upper[r])) for r in range(k)], add=True)
        kept = [half[up] for half, up in zip(halves, upper)]
        way.append((halves, distance, upper))
        distance //= 2
    for halves, distance, upper in reversed(way):
        exchange(halves, [(r, r ^ distance, int(upper[r])) for r in range(k)], add=False)


def in_blocks(data):
    """The sum is right, but its messages have no rounds."""
    allreduce_blocks(data)


def only_the_first_half(data):
    """Never sends anything back: each rank has the sum of one piece."""
    k = len(data)
    kept = [x.view(-1) for x in data]
    distance = 1
    while distance < k:
        halves = [x.tensor_split(2) for x in kept]
        upper = [bool(rank & distance) for rank in range(k)]
        exchange(halves, [(r, r ^ distance, int(not upper[r])) for r in range(k)], add=True)
        kept = [half[up] for half, up in zip(halves, upper)]
        distance *= 2


def the_half_that_is_kept(data):
    """Sends the half that it keeps itself, so that no half is ever complete."""
    k = len(data)
    kept = [x.view(-1) for x in data]
    way, distance = [], 1
    while distance < k:
        halves = [x.tensor_split(2) for x in kept]
        upper = [bool(rank & distance) for rank in range(k)]
        exchange(halves, [(r, r ^ distance, int(upper[r])) for r in range(k)], add=True)
        kept = [half[up] for half, up in zip(halves, upper)]
        way.append((halves, distance, upper))
        distance *= 2
    for halves, distance, upper in reversed(way):
        exchange(halves, [(r, r ^ distance, int(upper[r])) for r in range(k)], add=False)


def the_ring(data):
    """As few bytes, but too many rounds."""
    allreduce_ring(data)


def the_sum_returned(data):
    """The sums are returned, and the buffers stay as they were."""
    return [sum(data) for _ in data]


def the_tree(data):
    """As few rounds, but too many bytes."""
    allreduce_tree(data)


def two_who_have_read_it_all(data):
    """Games the count: the sum is made without messages, divided, and then added up by the right ones."""
    share = sum(data) / len(data)
    for x in data:
        x.copy_(share)
    _halving(data)


def whole_buffers(data):
    """Partners at the right distances, but they send whole buffers."""
    k, scratch, distance = len(data), [[torch.empty_like(x)] for x in data], 1
    while distance < k:  # whole buffers in log2 k rounds
        exchange([[x] for x in data], [(r, r ^ distance, 0) for r in range(k)], add=False, into=scratch)
        exchange([[x[:0]] for x in data], [], add=False)
        for x, (new,) in zip(data, scratch):
            x.add_(new)
        distance *= 2
