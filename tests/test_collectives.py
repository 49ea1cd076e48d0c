"""Tests of d2lpar.collectives: what each algorithm leaves, in which bits, after which messages, and what it refuses.

First a few numbers to follow by hand, then any buffers at all. The checks are functions, `check_...(algorithm, case)`.
The tests of the real algorithms call them, and so do those of the bugs at the end, which are published ones or easily
made: each must be caught by the checks named for it, and by no other.
"""

import threading
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lpar import allreduce, collectives, run_on_devices, try_devices
from d2lpar.checks import as_arrays
from d2lpar.collectives import (
    Meter,
    all_gather,
    allreduce_blocks,
    allreduce_flat,
    allreduce_naive,
    allreduce_ring,
    allreduce_tree,
    reduce_scatter,
)
from d2lpar.pages import broken
from d2lpar.pages.cells import without_checks
from helpers import bugs, traffic
from helpers.collective_cases import FLOATS, INTEGERS, LAYOUTS, Case, cases, layouts, lengths_up_to
from helpers.collective_checks import (
    AUDIT,
    DEVICES,
    METER,
    PLACE,
    RUNS,
    SUMS,
    assert_sum,
    caught_by,
    check_bits_equal_in_two_runs,
    check_bits_equal_on_all_devices,
    check_in_place,
    check_meter,
    check_sums,
    same_bits,
)
from helpers.refused_buffers import overlapping_buffers, refused, refused_lists, remember, unchanged
from helpers.traffic import BLOCK_BYTES, small_blocks

pytestmark = pytest.mark.usefixtures("no_meter_is_left_on")


def flat(algorithm, data):
    """Each buffer as a list of one tensor."""
    allreduce_flat([[x] for x in data], algorithm)


flat_ring, flat_naive = partial(flat, allreduce_ring), partial(flat, allreduce_naive)
flat_ring.__name__, flat_naive.__name__ = "allreduce_flat", "allreduce_flat, naive"

ALLREDUCES = [allreduce, allreduce_naive, allreduce_tree, allreduce_ring, allreduce_blocks, flat_ring, flat_naive]
IN_ROUNDS = [allreduce_naive, allreduce_tree, allreduce_ring]
TRAFFIC = {allreduce_naive: traffic.naive, allreduce_tree: traffic.tree, allreduce_ring: traffic.ring,
           reduce_scatter: traffic.reduce_scatter, all_gather: traffic.all_gather, allreduce_blocks: traffic.blocks,
           flat_ring: traffic.ring, flat_naive: traffic.naive}
every_allreduce = pytest.mark.parametrize("algorithm", ALLREDUCES, ids=lambda a: a.__name__)
every_algorithm = pytest.mark.parametrize("algorithm", [*ALLREDUCES, reduce_scatter, all_gather],
                                          ids=lambda a: a.__name__)


# By hand


def test_three_numbers_become_their_sum_in_every_buffer_itself():
    data = [torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([4.0])]
    buffers = list(data)
    assert allreduce(data) is None
    for slot, buffer in zip(data, buffers):
        assert slot is buffer, "a list slot was rebound: the caller's own tensor would keep its old value"
        assert buffer.tolist() == [7.0]


def test_reduce_scatter_keeps_in_chunk_c_of_rank_r_the_sum_from_rank_c_plus_1_on_to_r():
    data = [torch.full((4,), 2.0**rank) for rank in range(4)]
    reduce_scatter(data)
    assert [x.tolist() for x in data] == [
        [2 + 4 + 8 + 1, 1 + 4 + 8, 1 + 8, 1],
        [2, 4 + 8 + 1 + 2, 8 + 1 + 2, 1 + 2],
        [2 + 4, 4, 8 + 1 + 2 + 4, 1 + 2 + 4],
        [2 + 4 + 8, 4 + 8, 8, 1 + 2 + 4 + 8]]


def test_all_gather_copies_the_chunk_that_each_rank_has_to_all_others():
    data = [torch.tensor([1.0, 0, 0]), torch.tensor([0, 2.0, 0]), torch.tensor([0, 0, 4.0])]
    all_gather(data)
    assert [x.tolist() for x in data] == [[1, 2, 4]] * 3


def test_three_numbers_whose_sum_around_the_ring_has_another_last_bit():
    numbers = (0.1, 0.2, 0.3)
    naive, ring = ([torch.full((3,), x, dtype=torch.float64) for x in numbers] for _ in range(2))
    allreduce_naive(naive)
    allreduce_ring(ring)
    for rank in range(3):
        assert naive[rank].tolist() == [0.1 + 0.2 + 0.3] * 3
        assert ring[rank].tolist() == [0.2 + 0.3 + 0.1, 0.3 + 0.1 + 0.2, 0.1 + 0.2 + 0.3]
    assert not torch.equal(naive[0], ring[0])


def test_four_numbers_that_the_tree_adds_in_pairs():
    data = [torch.tensor(x) for x in (1e8, 1.0, -1e8, 1.0)]
    allreduce_tree(data)
    assert [x.item() for x in data] == [0.0] * 4  # (1e8 + 1) + (-1e8 + 1) in float32; in rank order it is 1


@pytest.mark.parametrize("algorithm", [allreduce, allreduce_naive, allreduce_blocks, flat_naive],
                         ids=lambda a: a.__name__)
def test_adding_in_another_order_than_the_ranks_would_show(algorithm):
    data = [torch.tensor(x) for x in (1e8, -1e8, 1.0)]
    algorithm(data)
    assert [x.item() for x in data] == [1.0] * 3  # (1e8 - 1e8) + 1 in float32; any other order gives 0


@every_allreduce
def test_nan_and_infinity_reach_every_replica_as_the_sum_has_them(algorithm):
    nan, inf = float("nan"), float("inf")
    data = [torch.tensor([nan, inf, inf, -inf, -0.0]), torch.tensor([1.0, 1.0, -inf, -inf, -0.0])]
    algorithm(data)
    for x in data:
        torch.testing.assert_close(x, torch.tensor([nan, inf, nan, -inf, -0.0]), equal_nan=True)
        assert x.signbit()[-1], "-0.0 and -0.0 make -0.0"


def test_lists_of_tensors_travel_as_one_buffer_per_device_around_the_ring_unless_told_otherwise():
    lists = [[torch.ones(3), torch.ones(2, 2), torch.ones(())] for _ in range(4)]
    case = Case(4, (8,))
    with Meter(try_devices(4)) as meter:
        allreduce_flat(lists)
    assert (meter.num_rounds, meter.sent_bytes) == (6, traffic.ring(case).sent)
    seen = []
    allreduce_flat(lists, seen.extend)
    assert [x.shape for x in seen] == [(8,)] * 4


# What the algorithms leave, for any buffers


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


# In which bits


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


@pytest.mark.parametrize("algorithm", [allreduce_naive, allreduce_tree, allreduce_ring, allreduce_blocks],
                         ids=lambda a: a.__name__)
def test_only_around_the_ring_another_cut_into_buckets_changes_the_last_bits(algorithm):
    whole, halves = Case(3, (10_002,)).buffers(), Case(3, (10_002,)).buffers()
    algorithm(whole)
    for bucket in zip(*(x.split(5001) for x in halves)):
        algorithm(bucket)
    assert all(same_bits(x, y) for x, y in zip(whole, halves)) == (algorithm is not allreduce_ring)


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


@pytest.mark.parametrize("rank", range(3))
def test_autograd_notices_that_blocks_have_overwritten_what_it_needs_on_any_rank(rank):
    w, data = torch.ones(3, requires_grad=True), [torch.ones(3) for _ in range(3)]
    loss = (w * data[rank]).sum()
    allreduce_blocks(data)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_arrays_lie_in_the_memory_of_the_tensors_and_are_given_for_all_of_them_or_none():
    x, half = torch.zeros(3), torch.zeros(3, dtype=torch.float16)
    [array] = as_arrays([x])
    array += 1
    assert isinstance(array, np.ndarray) and x.tolist() == [1, 1, 1]
    for other in (half, half.bfloat16(), torch.zeros(3, dtype=torch.complex64).conj()):
        assert [a is b for a, b in zip(as_arrays([x, other]), [x, other])] == [True, True]


# After which messages


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("algorithm", TRAFFIC, ids=lambda a: a.__name__)
def test_messages_rounds_and_bytes_are_those_of_the_theory(algorithm, ranks):
    for length in (0, 1, 3, 7, 8, 17, 100, 840):  # 840 divides by every number of ranks, the others by few
        for dtype in (torch.float32, torch.bfloat16):
            with small_blocks():
                check_meter(algorithm, Case(ranks, (length,), dtype), TRAFFIC[algorithm])
    with small_blocks():
        check_meter(algorithm, Case(ranks, (5, 7), torch.float64, ("transposed", "contiguous")), TRAFFIC[algorithm])


@pytest.mark.parametrize("ranks, cores, threads", [(8, 3, 3), (2, 3, 2), (5, 1, 1)])
def test_blocks_are_dealt_to_one_thread_per_core_and_no_more_than_there_are_devices(ranks, cores, threads):
    seen, deliver = set(), collectives.deliver

    def recorded(*args, **kwargs):
        seen.add(threading.current_thread().name)
        deliver(*args, **kwargs)

    with small_blocks(cores=cores), mock.patch.object(collectives, "deliver", recorded):
        allreduce_blocks(Case(ranks, (100,)).buffers())
    assert len(seen) == threads


# What is refused


@every_algorithm
@pytest.mark.parametrize("what, data", list(overlapping_buffers()))
def test_buffers_that_share_an_element_are_refused_before_anything_changes(algorithm, what, data):
    before = [x.clone() for x in data]
    with pytest.raises(ValueError, match=r"entries \d and \d overlap in memory"):
        algorithm(data)
    assert all(torch.equal(x, b) for x, b in zip(data, before)), what


@every_algorithm
@pytest.mark.parametrize("what, data, message", [pytest.param(*case, id=case[0]) for case in refused()])
def test_what_cannot_be_summed_in_place_is_refused_before_anything_changes(algorithm, what, data, message):
    before = remember(data)
    with Meter(try_devices(3)) as meter, pytest.raises(ValueError, match=message):
        algorithm(data)
    assert unchanged(data, before), what
    assert (meter.num_rounds, meter.messages) == (0, [])


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
    with pytest.raises(RuntimeError, match="own thread and would deadlock"):
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
def test_views_of_one_buffer_on_a_gpu_are_told_apart():
    base = torch.arange(6.0, device="cuda")
    allreduce([base[:3], base[3:]])
    assert base.tolist() == [3, 5, 7, 3, 5, 7]
    for overlapping in ([base[:3], base[2:5]], [base[::2], base[1::2]]):
        with pytest.raises(ValueError, match="overlap"):
            allreduce(overlapping)


# Bugs


EVEN, ODD, SHORT = Case(4, (12,)), Case(5, (13,)), Case(5, (3,))
EVEN_ON_5 = Case(5, (20,))
STRIDED, GAPS = Case(4, (3, 8), layouts=("every second", "transposed")), Case(4, (12,), layouts=("every second",))
BUGS = [  # the bug, the traffic that it claims to have, and for each case the checks that catch it
    (without_checks(allreduce)[0], traffic.nothing, {EVEN: {AUDIT}, ODD: {AUDIT}}),  # else only where two buffers are one
    (broken.allreduce_rank_0, traffic.nothing, {EVEN: {PLACE, AUDIT}, ODD: {PLACE, AUDIT}}),
    (broken.allreduce_whole, traffic.ring, {EVEN: {DEVICES, METER}, ODD: {DEVICES, METER}}),
    (broken.allreduce_passing, traffic.ring, {EVEN: {DEVICES, METER}, ODD: {DEVICES, METER}}),
    (broken.allreduce_behind, traffic.ring, {EVEN: {AUDIT}, ODD: {AUDIT}}),
    (bugs.arguments_added_instead_of_what_arrived, traffic.ring, {EVEN: {SUMS, DEVICES, METER},
                                                                  ODD: {SUMS, DEVICES, METER}}),
    (bugs.gather_of_the_chunk_before, traffic.ring, {EVEN: {SUMS}, ODD: {SUMS, METER}}),
    (bugs.tree_of_a_power_of_two, traffic.tree, {EVEN: set(), ODD: {SUMS, DEVICES, METER}}),
    (bugs.ring_without_the_remainder, traffic.ring, {EVEN: set(), EVEN_ON_5: set(), ODD: {SUMS, DEVICES, METER},
                                                     SHORT: {SUMS, DEVICES, METER}}),
    (bugs.new_tensors, traffic.ring, {EVEN: {PLACE}, ODD: {PLACE}}),
    (bugs.mean, traffic.ring, {EVEN: {SUMS}, ODD: {SUMS}}),
    (bugs.each_adds_its_own_first, traffic.all_to_all, {EVEN: {DEVICES}, ODD: {DEVICES}}),
    (bugs.added_as_they_arrive, traffic.naive, {EVEN: {RUNS, AUDIT}, ODD: {RUNS, AUDIT}}),
    (bugs.through_a_flat_copy, traffic.ring, {EVEN: set(), ODD: set(), STRIDED: {SUMS, DEVICES}}),
    (bugs.gaps_summed_as_well, traffic.ring, {EVEN: set(), GAPS: {PLACE, METER, AUDIT}}),
]


@pytest.mark.parametrize("algorithm, theory, case, checks", [
    pytest.param(bug, theory, case, checks, id=f"{bug.__name__}, {case.ranks} ranks, shape {case.shape}")
    for bug, theory, by_case in BUGS for case, checks in by_case.items()])
def test_each_bug_is_caught_by_its_checks_and_by_no_other(algorithm, theory, case, checks):
    assert caught_by(algorithm, case, theory) == checks


def test_every_broken_allreduce_is_in_the_table():
    shown = {name for name, value in vars(broken).items()
             if name.startswith("allreduce_") and value.__module__ == broken.__name__}
    assert shown and shown <= {bug.__name__ for bug, _, _ in BUGS}


@pytest.mark.parametrize("case", [EVEN, ODD, SHORT, EVEN_ON_5, STRIDED, GAPS], ids=str)
@pytest.mark.parametrize("algorithm", IN_ROUNDS, ids=lambda a: a.__name__)
def test_no_check_fails_on_what_is_right(algorithm, case):
    assert caught_by(algorithm, case, TRAFFIC[algorithm]) == set()
