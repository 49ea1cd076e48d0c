"""Tests of d2lpar.collectives: what each algorithm leaves, in which bits, after which messages, and what it refuses.

The checks are functions, `check_...(algorithm, case)`. The tests of the real algorithms call them, and so do those of
the bugs at the end, which are published ones or easily made: each must be caught by the checks named for it, and by
no other.
"""

import itertools
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lpar import collectives, run_on_devices, try_devices
from d2lpar.collectives import (
    all_gather,
    allreduce,
    allreduce_blocks,
    allreduce_flat,
    allreduce_naive,
    allreduce_ring,
    allreduce_tree,
    reduce_scatter,
)
from d2lpar.messages import Meter, exchange

FLOATS = [torch.float32, torch.float64, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8]
BLOCK_BYTES = 24  # three blocks and more where the package would have one


def flat(algorithm, data):
    """Each buffer as a list of one tensor."""
    allreduce_flat([[x] for x in data], algorithm)


flat_ring, flat_naive = partial(flat, allreduce_ring), partial(flat, allreduce_naive)
flat_ring.__name__, flat_naive.__name__ = "allreduce_flat", "allreduce_flat, naive"

ALLREDUCES = [allreduce, allreduce_naive, allreduce_tree, allreduce_ring, allreduce_blocks, flat_ring, flat_naive]
IN_ROUNDS = [allreduce_naive, allreduce_tree, allreduce_ring]
every_allreduce = pytest.mark.parametrize("algorithm", ALLREDUCES, ids=lambda a: a.__name__)
every_algorithm = pytest.mark.parametrize("algorithm", [*ALLREDUCES, reduce_scatter, all_gather],
                                          ids=lambda a: a.__name__)


@pytest.fixture(autouse=True)
def no_meter_is_left_on():
    yield
    left, Meter.on = Meter.on, None
    assert left is None


@contextmanager
def small_blocks(block_bytes=BLOCK_BYTES, cores=3):
    """Several blocks for each of several threads, also on a machine of one core."""
    with mock.patch.multiple(collectives, BLOCK_BYTES=block_bytes, ALL_CORES=cores):
        yield


def same_bits(a, b):
    """Unlike torch.equal, takes a NaN for equal to itself and 0.0 for different from -0.0."""
    bits_a, bits_b = (x.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for x in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits_a, bits_b)


# Cases: what the buffers of all ranks are, and how they lie in memory


LAYOUTS = {  # for each rank: the shape of the memory, and the buffer as a view of it
    "contiguous": (lambda shape: shape, lambda base: base),
    "behind others": (lambda shape: (3, *shape), lambda base: base[1]),
    "transposed": (lambda shape: shape[::-1], lambda base: base.permute(tuple(reversed(range(base.ndim))))),
    "every second": (lambda shape: (*shape, 2), lambda base: base[..., 1]),
    "every second row": (lambda shape: (2 * shape[0], *shape[1:]) if shape else (),
                         lambda base: base[::2] if base.ndim else base),
    "channels last": (lambda shape: (shape[0], *shape[2:], shape[1]) if len(shape) > 1 else shape,
                      lambda base: base.movedim(-1, 1) if base.ndim > 1 else base),
}
JOINT_LAYOUTS = {  # all ranks in one storage: the shape of the memory, and all buffers as views of it
    "interleaved": (lambda shape, k: (*shape, k), lambda base: list(base.unbind(-1))),
    "side by side": (lambda shape, k: (k, *shape), lambda base: list(base)),
}


@dataclass(frozen=True)
class Case:
    """Buffers for every rank, the same ones whenever asked."""

    ranks: int
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    layouts: tuple[str, ...] = ("contiguous",)  # the ranks take them in turn
    seed: int = 0

    @property
    def length(self):
        return int(np.prod(self.shape))

    @property
    def size_bytes(self):
        return self.length * self.dtype.itemsize

    @property
    def chunk_bytes(self):
        """What `tensor_split` promises: the first `length % ranks` chunks are one element longer."""
        share, longer = divmod(self.length, self.ranks)
        return [(share + (r < longer)) * self.dtype.itemsize for r in range(self.ranks)]

    def bases(self, dtype=None):
        """The memory, one tensor or one for each rank, without values."""
        joint = JOINT_LAYOUTS.get(self.layouts[0])
        if joint:
            return [torch.zeros(joint[0](self.shape, self.ranks), dtype=dtype or self.dtype)]
        layouts = itertools.islice(itertools.cycle(self.layouts), self.ranks)
        return [torch.zeros(LAYOUTS[name][0](self.shape), dtype=dtype or self.dtype) for name in layouts]

    def views(self, bases):
        joint = JOINT_LAYOUTS.get(self.layouts[0])
        views = joint[1](bases[0]) if joint else [
            LAYOUTS[name][1](base) for name, base in zip(itertools.cycle(self.layouts), bases)]
        assert [tuple(x.shape) for x in views] == [self.shape] * self.ranks
        return views

    def fill(self, bases, *, odd=False):
        """Normal numbers of many magnitudes, for `odd` in every second place any bits at all; all integers are such."""
        generator = torch.Generator().manual_seed(self.seed)
        for base in bases:
            size = (base.numel() * base.element_size(),)
            bits = torch.randint(256, size, dtype=torch.uint8, generator=generator).view(base.dtype)
            if base.is_floating_point():
                normal = torch.randn(base.numel(), dtype=torch.float64, generator=generator)
                normal *= 10 ** (torch.rand(base.numel(), dtype=torch.float64, generator=generator) * 6 - 3)
                special = torch.tensor([float("nan"), -float("nan"), float("inf"), -float("inf"), -0.0, 0.0])
                choice = torch.randint(len(special), (base.numel(),), generator=generator)
                kind = torch.randint(6, (base.numel(),), generator=generator) if odd else torch.tensor(0)
                normal = torch.where(kind == 3, special[choice], normal)
                bits = torch.where(kind > 3, bits, normal.to(base.dtype))
            base.copy_(bits.view(base.shape))

    def buffers(self, **kind):
        bases = self.bases()
        self.fill(bases, **kind)
        return self.views(bases)


def lengths_up_to(n):
    """Shapes of at most `n` elements, also of none, without dimensions and with several."""
    many = st.lists(st.integers(0, 6), max_size=4).map(tuple).filter(lambda shape: np.prod(shape) <= n)
    return st.one_of(st.integers(0, n).map(lambda length: (length,)), many)


layouts = st.one_of(st.lists(st.sampled_from(list(LAYOUTS)), min_size=1, max_size=3).map(tuple),
                    st.sampled_from([(name,) for name in JOINT_LAYOUTS]))
cases = st.builds(Case, ranks=st.integers(1, 8), shape=lengths_up_to(100), dtype=st.sampled_from(FLOATS + INTEGERS),
                  layouts=layouts, seed=st.integers(0, 2**31))


# Checks


def assert_sum(result, terms, what=""):
    """Integers, which wrap around, must be exact.

    Of k floats added in any order, each of the k - 1 sums is off by half an eps of it at most, and it is not larger
    than the sum of the absolute values by more than rounding: k * eps * sum|x| bounds the error twice over.
    """
    stacked = torch.stack([x.clone() for x in terms])
    if result.is_floating_point():
        wide = stacked.double()
        bound = len(terms) * torch.finfo(result.dtype).eps * wide.abs().sum(0)
        error = (result.double() - wide.sum(0)).abs()
        assert bool((error <= bound).all()), f"{what}: off by {error.max()}"
    else:
        expected = stacked.numpy().sum(0, dtype=stacked.numpy().dtype)
        assert np.array_equal(result.numpy(), expected), what


def check_sums(algorithm, case):
    """In every entry of the list lies the sum of all buffers."""
    data = case.buffers()
    before = [x.clone() for x in data]
    algorithm(data)
    for rank, x in enumerate(data):
        assert_sum(x, before, f"rank {rank}")


def check_in_place(algorithm, case):
    """The entries of the list are the caller's tensors as before, and memory beside them is untouched."""
    bases, masks = case.bases(), case.bases(torch.bool)
    case.fill(bases)
    data = case.views(bases)
    for mask in case.views(masks):
        mask.fill_(True)
    buffers, before = list(data), [base.clone() for base in bases]
    assert algorithm(data) is None
    assert all(slot is buffer for slot, buffer in zip(data, buffers)), "a list slot was rebound"
    for base, old, mask in zip(bases, before, masks):
        assert same_bits(base[~mask], old[~mask]), "memory between or behind the elements has changed"


def check_bits_equal_on_all_devices(algorithm, case):
    """All replicas end with the same bits, also where they are NaN, infinite or a zero with a sign."""
    for odd in (False, True):
        data = case.buffers(odd=odd)
        algorithm(data)
        assert all(same_bits(x, data[0]) for x in data)


def check_bits_equal_in_two_runs(algorithm, case):
    for odd in (False, True):
        first, second = case.buffers(odd=odd), case.buffers(odd=odd)
        algorithm(first)
        algorithm(second)
        assert all(same_bits(x, y) for x, y in zip(first, second))


class Traffic(NamedTuple):
    """What a meter counts: sizes of the messages of each round (sorted), and of all messages; bytes by rank."""

    rounds: list[list[int]]
    messages: list[int]
    sent: list[int]
    received: list[int]


def check_meter(algorithm, case, theory):
    """Messages, rounds and bytes are those of the theory; in a round no rank sends or receives twice."""
    data = case.buffers()
    with Meter(try_devices(case.ranks)) as meter:
        algorithm(data)
    counted = Traffic([sorted(sizes) for sizes in meter.rounds], sorted(m.size_bytes for m in meter.messages),
                      meter.sent_bytes, meter.received_bytes)
    assert counted == theory(case)
    for number in range(meter.num_rounds):
        for end in ("source", "target"):
            ranks = [getattr(m, end) for m in meter.messages if m.round == number]
            assert len(ranks) == len(set(ranks)), f"round {number}: a rank is {end} twice"
    spans = meter.spans
    assert sorted(span.rank for span in spans) == sorted(m.target for m in meter.messages)
    assert all(0 <= span.start_s <= span.end_s and span.what in ("add", "copy") for span in spans)


# Theory


def naive_traffic(case):
    k, size = case.ranks, case.size_bytes
    by_rank = [(k - 1) * size] + [size] * (k - 1)
    return Traffic([[size]] * (2 * (k - 1)), [size] * (2 * (k - 1)), by_rank, by_rank)


def tree_traffic(case):
    """Rank r > 0 hangs on the rank whose binary number lacks the last 1 of r's: one message up and one down."""
    k, size = case.ranks, case.size_bytes
    parents = [r & (r - 1) for r in range(1, k)]
    distances = [r & -r for r in range(1, k)]  # 1 in the first round up, 2 in the second, ...
    up = [[size] * distances.count(2**i) for i in range(int(np.ceil(np.log2(k))))]
    by_rank = [(parents.count(r) + (r > 0)) * size for r in range(k)]
    return Traffic(up + up[::-1], [size] * (2 * (k - 1)), by_rank, by_rank)


def reduce_scatter_traffic(case):
    """Rank r sends all but chunk r, which stays, and receives all but the one it would have sent first."""
    k, size, chunks = case.ranks, case.size_bytes, case.chunk_bytes
    return Traffic([sorted(chunks)] * (k - 1), sorted(chunks * (k - 1)), [size - chunks[r] for r in range(k)],
                   [size - chunks[r - 1] for r in range(k)])


def all_gather_traffic(case):
    """Rank r sends all but chunk r + 1, which the next rank has, and receives all but chunk r."""
    k, size, chunks = case.ranks, case.size_bytes, case.chunk_bytes
    return Traffic([sorted(chunks)] * (k - 1), sorted(chunks * (k - 1)), [size - chunks[(r + 1) % k] for r in range(k)],
                   [size - chunks[r] for r in range(k)])


def ring_traffic(case):
    first, second = reduce_scatter_traffic(case), all_gather_traffic(case)
    return Traffic(first.rounds + second.rounds, sorted(first.messages + second.messages),
                   [a + b for a, b in zip(first.sent, second.sent)],
                   [a + b for a, b in zip(first.received, second.received)])


def blocks_traffic(case):
    """In no rounds: along the ranks, and back from the last, in blocks; nothing at all is still one block."""
    k, size = case.ranks, case.size_bytes
    block = BLOCK_BYTES // case.dtype.itemsize * case.dtype.itemsize
    blocks = [min(block, size - start) for start in range(0, max(size, 1), block)]
    sent = [size] * (k - 1) + [(k - 1) * size]
    received = [(r > 0) * size + (r < k - 1) * size for r in range(k)]
    return Traffic([], sorted(blocks * (2 * (k - 1))), sent, received)


TRAFFIC = {allreduce_naive: naive_traffic, allreduce_tree: tree_traffic, allreduce_ring: ring_traffic,
           reduce_scatter: reduce_scatter_traffic, all_gather: all_gather_traffic, allreduce_blocks: blocks_traffic,
           flat_ring: ring_traffic, flat_naive: naive_traffic}


# What the algorithms leave


@every_allreduce
@settings(max_examples=100)
@given(case=cases)
def test_every_device_ends_with_the_sum_in_its_own_tensor_and_nothing_beside_it_changes(algorithm, case):
    with small_blocks():
        check_sums(algorithm, case)
        check_in_place(algorithm, case)


@settings(max_examples=120)
@given(case=cases)
def test_reduce_scatter_leaves_the_sum_of_chunk_r_on_rank_r(case):
    data = case.buffers()
    before = [x.clone().reshape(-1).tensor_split(case.ranks) for x in data]
    reduce_scatter(data)
    for rank, x in enumerate(data):
        assert_sum(x.reshape(-1).tensor_split(case.ranks)[rank], [chunks[rank] for chunks in before], f"rank {rank}")
    check_in_place(reduce_scatter, case)


@settings(max_examples=120)
@given(case=cases)
def test_all_gather_leaves_chunk_r_of_rank_r_on_every_rank_bit_for_bit(case):
    data = case.buffers(odd=True)
    chunks = [x.clone().reshape(-1).tensor_split(case.ranks)[rank] for rank, x in enumerate(data)]
    all_gather(data)
    for x in data:
        assert same_bits(x, torch.cat(chunks).view(case.shape))
    check_in_place(all_gather, case)


def test_reduce_scatter_keeps_in_chunk_c_of_rank_r_the_sum_from_rank_c_plus_1_on_to_r():
    data = [torch.full((4,), 2.0**rank) for rank in range(4)]
    reduce_scatter(data)
    assert [x.tolist() for x in data] == [
        [2 + 4 + 8 + 1, 1 + 4 + 8, 1 + 8, 1],
        [2, 4 + 8 + 1 + 2, 8 + 1 + 2, 1 + 2],
        [2 + 4, 4, 8 + 1 + 2 + 4, 1 + 2 + 4],
        [2 + 4 + 8, 4 + 8, 8, 1 + 2 + 4 + 8]]


@settings(max_examples=120)
@given(algorithm=st.sampled_from(ALLREDUCES[:5]), shapes=st.lists(lengths_up_to(40), min_size=1, max_size=4),
       ranks=st.integers(1, 8), dtype=st.sampled_from(FLOATS + INTEGERS), layouts=layouts, seed=st.integers(0, 2**31))
def test_lists_of_tensors_are_summed_entry_by_entry_where_they_lie(algorithm, shapes, ranks, dtype, layouts, seed):
    every = [Case(ranks, shape, dtype, layouts, seed + i) for i, shape in enumerate(shapes)]
    bases = [case.bases() for case in every]
    masks = [case.bases(torch.bool) for case in every]
    for case, memory, mask in zip(every, bases, masks):
        case.fill(memory)
        for view in case.views(mask):
            view.fill_(True)
    before = [[base.clone() for base in memory] for memory in bases]
    device_tensors = list(zip(*[case.views(memory) for case, memory in zip(every, bases)]))
    with small_blocks():
        assert allreduce_flat(device_tensors, algorithm) is None
    for i, (case, memory, old, mask) in enumerate(zip(every, bases, before, masks)):
        for rank in range(ranks):
            assert_sum(device_tensors[rank][i], case.views(old), f"tensor {i} of rank {rank}")
            assert same_bits(device_tensors[rank][i], device_tensors[0][i])
        for base, old_base, inside in zip(memory, old, mask):
            assert same_bits(base[~inside], old_base[~inside])


def test_lists_of_tensors_travel_as_one_buffer_per_device_around_the_ring_unless_told_otherwise():
    lists = [[torch.ones(3), torch.ones(2, 2), torch.ones(())] for _ in range(4)]
    case = Case(4, (8,))
    with Meter(try_devices(4)) as meter:
        allreduce_flat(lists)
    assert (meter.num_rounds, meter.sent_bytes) == (6, ring_traffic(case).sent)
    seen = []
    allreduce_flat(lists, seen.extend)
    assert [x.shape for x in seen] == [(8,)] * 4


def test_three_numbers_become_their_sum_in_every_buffer_itself():
    data = [torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([4.0])]
    buffers = list(data)
    assert allreduce(data) is None
    for slot, buffer in zip(data, buffers):
        assert slot is buffer, "a list slot was rebound: the caller's own tensor would keep its old value"
        assert buffer.tolist() == [7.0]


@every_allreduce
def test_strided_views_are_written_where_they_lie_and_nothing_beside_them(algorithm):
    matrices = [torch.full((4, 6), float(r)) for r in range(3)]
    algorithm([m.t()[::2] for m in matrices])
    for r, m in enumerate(matrices):
        assert torch.equal(m[:, ::2], torch.full((4, 3), 3.0))
        assert torch.equal(m[:, 1::2], torch.full((4, 3), float(r)))


@every_allreduce
def test_buffers_in_one_storage_that_share_no_element_are_accepted(algorithm):
    interleaved = torch.arange(12.0)
    algorithm([interleaved[::3], interleaved[1::3], interleaved[2::3]])
    assert torch.equal(interleaved, torch.tensor([3.0, 12, 21, 30]).repeat_interleave(3))
    columns = torch.ones(40, 40)
    algorithm([columns[:, :20], columns[:, 20:]])
    assert torch.equal(columns, torch.full((40, 40), 2.0))
    halves = torch.ones(6)
    algorithm([halves[:3], halves[3:]])
    assert torch.equal(halves, torch.full((6,), 2.0))
    algorithm([halves[6:], halves[6:]])


@every_algorithm
def test_leaves_that_require_grad_may_be_summed_without_grad_mode(algorithm):
    for make in (lambda: torch.ones(4, requires_grad=True), lambda: torch.ones(2, 2).t().requires_grad_()):
        data = [make() for _ in range(2)]
        with torch.no_grad(), small_blocks():
            algorithm(data)
        assert all(x.is_leaf and x.requires_grad for x in data)
        assert algorithm is all_gather or data[0][0].tolist() == make()[0].mul(2).tolist()


@every_algorithm
def test_all_works_in_inference_mode_on_plain_tensors(algorithm):
    data = [torch.ones(2, 3), torch.ones(3, 2).t()]
    with torch.inference_mode(), small_blocks():
        algorithm(data)
        assert algorithm is all_gather or data[1][1, 2] == 2
    assert not any(x.is_inference() for x in data)
    data[1] += 1


# Bits


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (7,), (3, 5, 2)])
def test_the_sum_is_taken_in_rank_order_and_has_the_same_bits_everywhere(ranks, dtype, shape):
    generator = torch.Generator().manual_seed(ranks)
    data = tuple((torch.randn(shape, generator=generator) * 10 ** (r % 4)).to(dtype) for r in range(ranks))
    by_hand = data[0].clone()
    for x in data[1:]:
        by_hand = by_hand + x
    allreduce(data)
    for x in data:
        assert same_bits(x, by_hand)


@every_allreduce
@settings(max_examples=60)
@given(case=cases)
def test_bits_are_equal_on_all_devices_and_in_every_run(algorithm, case):
    with small_blocks():
        check_bits_equal_on_all_devices(algorithm, case)
        check_bits_equal_in_two_runs(algorithm, case)


@pytest.mark.parametrize("algorithm", [allreduce_naive, allreduce_blocks, flat_naive], ids=lambda a: a.__name__)
@settings(max_examples=100)
@given(case=cases, odd=st.booleans(), block_bytes=st.sampled_from([8, BLOCK_BYTES, 100, 2**20]),
       cores=st.integers(1, 9))
def test_what_promises_the_bits_of_allreduce_has_them(algorithm, case, odd, block_bytes, cores):
    data, expected = case.buffers(odd=odd), case.buffers(odd=odd)
    with small_blocks(block_bytes, cores):
        algorithm(data)
    allreduce(expected)
    if case.dtype == torch.bfloat16 or (algorithm is allreduce_blocks and case.dtype.is_floating_point):
        # Which of the many NaN comes out is not promised: in bfloat16 it depends on whether PyTorch added it in a
        # vector or alone, and everywhere on which of two NaN stands first
        for x in (*data, *expected):
            x[x.isnan()] = float("nan")
    for x, y in zip(data, expected):
        assert same_bits(x, y)


@pytest.mark.parametrize("algorithm", [allreduce, allreduce_naive, allreduce_blocks, flat_naive],
                         ids=lambda a: a.__name__)
def test_adding_in_another_order_than_the_ranks_would_show(algorithm):
    data = [torch.tensor(x) for x in (1.0, 1e8, -1e8)]
    algorithm(data)
    assert [x.item() for x in data] == [0.0] * 3  # (1 + 1e8) - 1e8 in float32; any other order gives 1


def test_three_numbers_whose_sum_around_the_ring_has_another_last_bit():
    numbers = (0.1, 0.2, 0.3)
    naive, ring = ([torch.full((3,), x, dtype=torch.float64) for x in numbers] for _ in range(2))
    allreduce_naive(naive)
    allreduce_ring(ring)
    for rank in range(3):
        assert naive[rank].tolist() == [0.1 + 0.2 + 0.3] * 3
        assert ring[rank].tolist() == [0.2 + 0.3 + 0.1, 0.3 + 0.1 + 0.2, 0.1 + 0.2 + 0.3]
    assert not torch.equal(naive[0], ring[0])


@pytest.mark.parametrize("ranks, cores, threads", [(8, 3, 3), (2, 3, 2), (5, 1, 1)])
def test_blocks_are_dealt_to_one_thread_per_core_and_no_more_than_there_are_devices(ranks, cores, threads):
    seen, deliver = set(), collectives.deliver

    def recorded(*args, **kwargs):
        seen.add(threading.current_thread().name)
        deliver(*args, **kwargs)

    with small_blocks(cores=cores), mock.patch.object(collectives, "deliver", recorded):
        allreduce_blocks(Case(ranks, (100,)).buffers())
    assert len(seen) == threads


def test_four_numbers_that_the_tree_adds_in_pairs():
    data = [torch.tensor(x) for x in (1e8, 1.0, -1e8, 1.0)]
    allreduce_tree(data)
    assert [x.item() for x in data] == [0.0] * 4  # (1e8 + 1) + (-1e8 + 1) in float32; in rank order it is 1


@every_algorithm
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_device_keeps_its_bits_and_sends_nothing(algorithm, layout):
    x = torch.tensor([-0.0, 1e-45, float("nan"), -float("nan"), float("inf"), 3.0]).view(2, 3)
    payload = torch.tensor([0x7F812345, 0x7FC12345], dtype=torch.int32).view(torch.float32)  # one of them signals
    for case, values in ((Case(1, (2, 3), layouts=(layout,)), x), (Case(1, (2,), layouts=(layout,)), payload)):
        [buffer] = case.views(case.bases())
        buffer.view(torch.int32).copy_(values.view(torch.int32))
        with small_blocks(), Meter(try_devices(1)) as meter:
            algorithm([buffer])
        assert same_bits(buffer, values)
        assert (meter.messages, meter.num_rounds) == ([], 0)


@every_allreduce
def test_nan_and_infinity_reach_every_replica_as_the_sum_has_them(algorithm):
    nan, inf = float("nan"), float("inf")
    data = [torch.tensor([nan, inf, inf, -inf, -0.0]), torch.tensor([1.0, 1.0, -inf, -inf, -0.0])]
    algorithm(data)
    for x in data:
        torch.testing.assert_close(x, torch.tensor([nan, inf, nan, -inf, -0.0]), equal_nan=True)
        assert x.signbit()[-1], "-0.0 and -0.0 make -0.0"


# Messages


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("algorithm", TRAFFIC, ids=lambda a: a.__name__)
def test_messages_rounds_and_bytes_are_those_of_the_theory(algorithm, ranks):
    for length in (0, 1, 3, 7, 8, 17, 100, 840):  # 840 divides by every number of ranks, the others by few
        for dtype in (torch.float32, torch.bfloat16):
            with small_blocks():
                check_meter(algorithm, Case(ranks, (length,), dtype), TRAFFIC[algorithm])
    for layouts in (("transposed", "contiguous"), ("interleaved",)):
        with small_blocks():
            check_meter(algorithm, Case(ranks, (5, 7), torch.float64, layouts), TRAFFIC[algorithm])


@pytest.mark.parametrize("k", range(1, 9))
def test_the_numbers_of_the_chapter(k):
    case = Case(k, (840,))
    size = case.size_bytes

    def metered(algorithm):
        with Meter(try_devices(k)) as meter:
            algorithm(case.buffers())
        return meter

    naive, tree, ring = metered(allreduce_naive), metered(allreduce_tree), metered(allreduce_ring)
    assert (naive.num_rounds, len(naive.messages)) == (2 * (k - 1), 2 * (k - 1))
    assert naive.sent_bytes[0] == naive.received_bytes[0] == (k - 1) * size
    assert (tree.num_rounds, len(tree.messages)) == (2 * [0, 1, 2, 2, 3, 3, 3, 3][k - 1], 2 * (k - 1))
    assert (ring.num_rounds, len(ring.messages)) == (2 * (k - 1), 2 * k * (k - 1))
    assert ring.sent_bytes == ring.received_bytes == [2 * (k - 1) * size // k] * k
    for half in (reduce_scatter, all_gather):
        meter = metered(half)
        assert (meter.num_rounds, meter.sent_bytes) == (k - 1, [(k - 1) * size // k] * k)
    assert sum(naive.sent_bytes) == sum(tree.sent_bytes) == sum(ring.sent_bytes) == 2 * (k - 1) * size


@pytest.mark.parametrize("algorithm", TRAFFIC, ids=lambda a: a.__name__)
@settings(max_examples=25)
@given(case=cases)
def test_a_meter_changes_no_bit(algorithm, case):
    with small_blocks():
        off, on = case.buffers(odd=True), case.buffers(odd=True)
        algorithm(off)
        with Meter(try_devices(case.ranks)) as meter:
            algorithm(on)
    assert all(same_bits(x, y) for x, y in zip(off, on))
    assert bool(meter.messages) == (case.ranks > 1)


def test_what_arrives_is_added_on_the_way_to_the_sum_and_copied_on_the_way_back():
    for algorithm, adds, copies in ((allreduce_naive, 4, 4), (allreduce_tree, 4, 4), (allreduce_ring, 20, 20),
                                    (reduce_scatter, 20, 0), (all_gather, 0, 20), (allreduce_blocks, 8, 8)):
        with small_blocks(), Meter(try_devices(5)) as meter:
            algorithm(Case(5, (11,)).buffers())  # two blocks
        kinds = [span.what for span in meter.spans]
        assert (kinds.count("add"), kinds.count("copy")) == (adds, copies)


# What is refused


def overlapping_buffers():
    base, memory, matrix = torch.ones(6), np.ones(6, np.float32), torch.ones(4, 4)
    replica = torch.ones(3)
    yield "the same tensor", [replica, replica]
    yield "p.to(device) of a tensor that is there", [replica, replica.to("cpu")]
    yield "shifted by one", [base[:5], base[1:]]
    yield "every second and every third", [base[::2], base[::3].new_ones(3), base[3:6]]
    yield "a row and a column", [matrix[1], matrix[:, 2]]
    yield "two tensors of one numpy array", [torch.from_numpy(memory[:4]), torch.from_numpy(memory[2:])]
    yield "the first and the last", [base[:3], torch.ones(3), base[2:5]]


@every_algorithm
@pytest.mark.parametrize("what, data", list(overlapping_buffers()))
def test_buffers_that_share_an_element_are_refused_before_anything_changes(algorithm, what, data):
    before = [x.clone() for x in data]
    with pytest.raises(ValueError, match=r"entries \d and \d overlap in memory"):
        algorithm(data)
    assert all(torch.equal(x, b) for x, b in zip(data, before)), what


@every_algorithm
def test_the_overlap_error_names_the_entries(algorithm):
    x = torch.ones(2)
    with pytest.raises(ValueError, match="entries 1 and 3 overlap"):
        algorithm([torch.ones(2), x, torch.ones(2), x])


def refused():
    yield "no tensor", [], "at least one tensor, got none|got lengths \\[\\]"
    yield "shapes", [torch.ones(2), torch.ones(2), torch.ones(3)], (
        r"shape of entry 2 is torch.Size\(\[3\]\), of entry 0 torch.Size\(\[2\]\)")
    yield "shapes that would broadcast", [torch.ones(2, 2), torch.ones(2)], "shape of entry 1"
    yield "as many elements in another shape", [torch.ones(2, 3), torch.ones(3, 2)], "shape of entry 1"
    yield "dtypes", [torch.ones(2), torch.ones(2, dtype=torch.float64)], (
        "dtype of entry 1 is torch.float64, of entry 0 torch.float32")
    yield "expanded", [torch.ones(3), torch.ones(1).expand(3)], "entry 1 is an expanded tensor"
    yield "expanded in one dimension", [torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 1).expand(2, 3)], (
        "entry 2 is an expanded tensor")
    yield "overlapping itself", [torch.ones(3, 3), torch.arange(5.0).unfold(0, 3, 1)], "entry 1"
    yield "leaf", [torch.ones(2), torch.ones(2, requires_grad=True)], "entry 1 requires grad.*no_grad"
    yield "view of a leaf", [torch.ones(2), torch.ones(3, 2, requires_grad=True)[0]], "entry 1 requires grad"
    yield "the result of a computation", [torch.ones(2, requires_grad=True) * 2, torch.ones(2)], "entry 0 requires grad"
    yield "sparse", [torch.ones(2), torch.ones(2).to_sparse()], "entry 1 is a torch.sparse_coo tensor on cpu"
    yield "meta", [torch.ones(2), torch.ones(2), torch.ones(2, device="meta")], (
        "entry 2 is a torch.strided tensor on meta")


def remember(tensors):
    return [x.detach().to_dense().clone() for x in tensors]


def unchanged(tensors, before):
    return all(x.is_meta or torch.equal(x.detach().to_dense(), b) for x, b in zip(tensors, before))


@every_algorithm
@pytest.mark.parametrize("what, data, message", [pytest.param(*case, id=case[0]) for case in refused()])
def test_what_cannot_be_summed_in_place_is_refused_before_anything_changes(algorithm, what, data, message):
    before = remember(data)
    with Meter(try_devices(3)) as meter, pytest.raises(ValueError, match=message):
        algorithm(data)
    assert unchanged(data, before), what
    assert (meter.num_rounds, meter.messages) == (0, [])


def refused_lists():
    a, b, c = torch.ones(2), torch.ones(2) * 2, torch.ones(2) * 4
    base = torch.arange(6.0)
    yield "no lists", [], r"at least 1, got lengths \[\]"
    yield "empty lists", [[], []], r"at least 1, got lengths \[0, 0\]"
    yield "different lengths", [[a, b], [c]], r"same number of tensors.*got lengths \[2, 1\]"
    yield "shapes", [[a, torch.ones(3)], [b, torch.ones(2)]], "tensor 1 of each list: the shape of entry 1"
    yield "dtypes between lists", [[a], [b.double()]], "tensor 0 of each list: the dtype of entry 1"
    yield "dtypes within a list", [[a, torch.ones(2, dtype=torch.int64)], [b, torch.ones(2, dtype=torch.int64)]], (
        "tensors of rank 0 cannot be one buffer: they are of torch.float32 on cpu, torch.int64 on cpu")
    yield "leaf", [[a, b], [c, torch.ones(2, requires_grad=True)]], "tensor 1 of each list: entry 1 requires grad"
    yield "sparse", [[a, torch.ones(2).to_sparse()], [b, torch.ones(2).to_sparse()]], "tensor 1 of each list: entry 0"
    yield "meta", [[a, torch.ones(2, device="meta")]], "tensor 1 of each list: entry 0"
    yield "expanded", [[a, torch.ones(1).expand(2)], [b, torch.ones(2)]], "tensor 1 of each list: entry 0 is an expan"
    yield "one tensor in two lists", [[a, b], [c, b]], "tensor 1 of each list: entries 0 and 1 overlap"
    yield "one tensor in two lists, at another place", [[a, b], [b, c]], "overlap"
    yield "one element in two lists, at another place", [[base[:3], torch.ones(3)], [torch.ones(3), base[2:5]]], (
        "overlap")
    yield "one element in two lists, and another tensor in between", [
        [base[::3], base[1:2]], [torch.ones(2), base[3:4]]], "overlap"
    yield "one tensor twice in one list", [[a, a], [b, c]], "overlap"


@pytest.mark.parametrize("algorithm", ALLREDUCES[:5], ids=lambda a: a.__name__)
@pytest.mark.parametrize("what, lists, message", [pytest.param(*case, id=case[0]) for case in refused_lists()])
def test_lists_that_cannot_be_one_buffer_are_refused_before_anything_changes(algorithm, what, lists, message):
    before = [remember(tensors) for tensors in lists]
    with pytest.raises(ValueError, match=message):
        allreduce_flat(lists, algorithm)
    assert all(unchanged(tensors, old) for tensors, old in zip(lists, before)), what


@pytest.mark.timeout(60)
@pytest.mark.parametrize("algorithm", [a for a in TRAFFIC], ids=lambda a: a.__name__)
@pytest.mark.parametrize("layout", ["contiguous", "every second"])
def test_in_a_devices_own_thread_it_is_an_error_instead_of_waiting_forever(algorithm, layout):
    data = Case(3, (7,), layouts=(layout,)).buffers()
    before = [x.clone() for x in data]
    with pytest.raises(RuntimeError, match="own thread: would wait forever"):
        run_on_devices(lambda _: algorithm(data), [0])
    assert all(same_bits(x, b) for x, b in zip(data, before))


# GPUs


@pytest.fixture
def gpus_and_cpu():
    return [*try_devices(max(2, torch.cuda.device_count())), torch.device("cpu")]


@pytest.mark.gpu
@every_allreduce
@pytest.mark.parametrize("length", [1, 7, 840, 100_003])
def test_buffers_on_different_devices_are_summed_too(algorithm, length, gpus_and_cpu):
    case = Case(len(gpus_and_cpu), (length,), torch.float64)
    on_cpu = case.buffers()
    data = [x.to(device, copy=True) for x, device in zip(on_cpu, gpus_and_cpu)]
    algorithm(data)
    assert [x.device.type for x in data] == [device.type for device in gpus_and_cpu]
    for rank, x in enumerate(data):
        assert_sum(x.cpu(), on_cpu, f"rank {rank}")
        assert same_bits(x.cpu(), data[0].cpu())


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", [reduce_scatter, all_gather], ids=lambda a: a.__name__)
def test_the_halves_of_the_ring_work_on_different_devices_too(algorithm, gpus_and_cpu):
    case = Case(len(gpus_and_cpu), (17,))
    on_cpu = case.buffers()
    data = [x.to(device, copy=True) for x, device in zip(on_cpu, gpus_and_cpu)]
    algorithm(data)
    algorithm(on_cpu)
    assert all(same_bits(x.cpu(), y) for x, y in zip(data, on_cpu))


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", TRAFFIC, ids=lambda a: a.__name__)
def test_a_meter_counts_the_same_on_different_devices(algorithm, gpus_and_cpu):
    case = Case(len(gpus_and_cpu), (17,))
    data = [x.to(device, copy=True) for x, device in zip(case.buffers(), gpus_and_cpu)]
    with small_blocks(), Meter(gpus_and_cpu) as meter:
        algorithm(data)
    assert meter.sent_bytes == TRAFFIC[algorithm](case).sent
    assert len(meter.spans) == len(meter.messages)
    assert all(span.start_s <= span.end_s for span in meter.spans)


@pytest.mark.gpu
def test_views_of_one_buffer_on_a_gpu_are_told_apart():
    base = torch.arange(6.0, device="cuda")
    allreduce([base[::2], base[1::2]])
    assert base.tolist() == [1, 1, 5, 5, 9, 9]
    with pytest.raises(ValueError, match="overlap"):
        allreduce([base[:3], base[2:5]])


# Bugs


def next_of(k):
    return [(r, (r + 1) % k, 0) for r in range(k)]


def whole_tensors_but_only_the_chunk_added(data):
    """In several published rings: the right sums by k times the bytes."""
    k = len(data)
    whole, arrived = [[x] for x in data], [[torch.empty_like(x)] for x in data]
    for step in range(2 * (k - 1)):
        exchange(whole, next_of(k), add=False, into=arrived)
        for r in range(k):
            c = (r - step - 2 if step < k - 1 else r - 1 - (step - (k - 1))) % k
            mine, other = data[r].tensor_split(k)[c], arrived[r][0].tensor_split(k)[c]
            if step < k - 1:
                mine += other
            else:
                mine.copy_(other)


def buffers_passed_on_whole(data):
    """The "ring" of PyTorch's tutorial on writing distributed applications."""
    k = len(data)
    sent, received = [[x.clone()] for x in data], [[torch.empty_like(x)] for x in data]
    for _ in range(k - 1):
        exchange(sent, next_of(k), add=False, into=received)
        for x, [other] in zip(data, received):
            x += other
        sent, received = received, sent


def arguments_added_instead_of_what_arrived(data):
    """An older version of it: accum[:] += recv[:] and += send[:], the function's arguments."""
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


def all_to_all_traffic(case):
    k, size = case.ranks, case.size_bytes
    return Traffic([[size] * k] * (k - 1), [size] * (k * (k - 1)), [(k - 1) * size] * k, [(k - 1) * size] * k)


def each_adds_its_own_first(data):
    """Every rank sends its buffer to every other: fewer rounds, but each adds in an order of its own."""
    k, copies = len(data), [[x.clone()] for x in data]
    for distance in range(1, k):
        exchange(copies, [(r, (r + distance) % k, 0) for r in range(k)], add=True, into=[[x] for x in data])


def added_as_they_arrive(data, turns=itertools.count()):
    """Sums in another order in every run, but in the same on all devices."""
    shift = next(turns) % 2
    order = [*data[shift:], *data[:shift]]
    allreduce_naive(order)


def through_a_flat_copy(data):
    """`reshape` of a buffer with gaps is a copy, whose sum the buffer never sees."""
    allreduce_ring([x.reshape(-1) for x in data])


def gaps_summed_as_well(data):
    """The whole storage of each buffer."""
    allreduce_ring([x.new_empty(0).set_(x.untyped_storage()) for x in data])


SUMS, PLACE, DEVICES, RUNS, METER = "sums", "in place", "bits on all devices", "bits in two runs", "meter"


def caught_by(algorithm, case, theory):
    """The names of the checks that fail."""
    checks = {SUMS: check_sums, PLACE: check_in_place, DEVICES: check_bits_equal_on_all_devices,
              RUNS: check_bits_equal_in_two_runs, METER: partial(check_meter, theory=theory)}
    failed = set()
    for name, check in checks.items():
        try:
            check(algorithm, case)
        except AssertionError:
            failed.add(name)
    return failed


EVEN, ODD, SHORT = Case(4, (12,)), Case(5, (13,)), Case(5, (3,))
EVEN_ON_5 = Case(5, (20,))
STRIDED, GAPS = Case(4, (3, 8), layouts=("every second", "transposed")), Case(4, (12,), layouts=("every second",))
BUGS = [
    (whole_tensors_but_only_the_chunk_added, ring_traffic, {EVEN: {METER}, ODD: {METER}}),
    (buffers_passed_on_whole, ring_traffic, {EVEN: {DEVICES, METER}, ODD: {DEVICES, METER}}),
    (arguments_added_instead_of_what_arrived, ring_traffic, {EVEN: {SUMS, DEVICES, METER},
                                                             ODD: {SUMS, DEVICES, METER}}),
    (gather_of_the_chunk_before, ring_traffic, {EVEN: {SUMS}, ODD: {SUMS, METER}}),
    (tree_of_a_power_of_two, tree_traffic, {EVEN: set(), ODD: {SUMS, DEVICES, METER}}),
    (ring_without_the_remainder, ring_traffic, {EVEN: set(), EVEN_ON_5: set(), ODD: {SUMS, DEVICES, METER},
                                                SHORT: {SUMS, DEVICES, METER}}),
    (new_tensors, ring_traffic, {EVEN: {PLACE}, ODD: {PLACE}}),
    (mean, ring_traffic, {EVEN: {SUMS}, ODD: {SUMS}}),
    (each_adds_its_own_first, all_to_all_traffic, {EVEN: {DEVICES}, ODD: {DEVICES}}),
    (added_as_they_arrive, naive_traffic, {EVEN: {RUNS}, ODD: {RUNS}}),
    (through_a_flat_copy, ring_traffic, {EVEN: set(), ODD: set(), STRIDED: {SUMS, DEVICES}}),
    (gaps_summed_as_well, ring_traffic, {EVEN: set(), GAPS: {PLACE, METER}}),
]


@pytest.mark.parametrize("algorithm, theory, case, checks", [
    pytest.param(bug, theory, case, checks, id=f"{bug.__name__}, {case.ranks} ranks, shape {case.shape}")
    for bug, theory, by_case in BUGS for case, checks in by_case.items()])
def test_each_bug_is_caught_by_its_checks_and_by_no_other(algorithm, theory, case, checks):
    assert caught_by(algorithm, case, theory) == checks


@pytest.mark.parametrize("case", [EVEN, ODD, SHORT, EVEN_ON_5, STRIDED, GAPS], ids=str)
@pytest.mark.parametrize("algorithm", IN_ROUNDS, ids=lambda a: a.__name__)
def test_no_check_fails_on_what_is_right(algorithm, case):
    assert caught_by(algorithm, case, TRAFFIC[algorithm]) == set()


@pytest.mark.parametrize("algorithm, shares", [(allreduce_ring, 1.5), (whole_tensors_but_only_the_chunk_added, 6.0),
                                               (buffers_passed_on_whole, 3.0)], ids=lambda a: getattr(a, "__name__", a))
def test_bytes_sent_per_rank_in_sizes_of_a_buffer_on_four_devices(algorithm, shares):
    with Meter(try_devices(4)) as meter:
        algorithm(EVEN.buffers())
    assert [sent / EVEN.size_bytes for sent in meter.sent_bytes] == [shares] * 4
