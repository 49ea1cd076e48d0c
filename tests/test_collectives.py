"""Tests of d2lpar.collectives: what allreduce changes, in which order it adds, and what it refuses."""

import numpy as np
import pytest
import torch

from d2lpar import allreduce, try_devices


def same_bits(a, b):
    """Unlike torch.equal, takes a NaN for equal to itself and 0.0 for different from -0.0."""
    bits_a, bits_b = (x.reshape(-1).view(torch.uint8) for x in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits_a, bits_b)


def test_three_numbers_become_their_sum_in_every_buffer_itself():
    data = [torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([4.0])]
    buffers = list(data)
    assert allreduce(data) is None
    for slot, buffer in zip(data, buffers):
        assert slot is buffer, "a list slot was rebound: the caller's own tensor would keep its old value"
        assert buffer.tolist() == [7.0]


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


def test_adding_in_another_order_than_the_ranks_would_show():
    data = [torch.tensor(x) for x in (1.0, 1e8, -1e8)]
    allreduce(data)
    assert [x.item() for x in data] == [0.0] * 3  # (1 + 1e8) - 1e8 in float32; any other order gives 1


def test_one_device_keeps_its_bits():
    x = torch.tensor([-0.0, 1e-45, float("nan")])
    before = x.clone()
    allreduce([x])
    assert same_bits(x, before)


def test_nan_and_infinity_reach_every_replica_as_the_sum_has_them():
    nan, inf = float("nan"), float("inf")
    data = [torch.tensor([nan, inf, inf, -inf]), torch.tensor([1.0, 1.0, -inf, -inf])]
    allreduce(data)
    for x in data:
        torch.testing.assert_close(x, torch.tensor([nan, inf, nan, -inf]), equal_nan=True)


def test_strided_views_are_written_where_they_lie_and_nothing_beside_them():
    matrices = [torch.full((4, 6), float(r)) for r in range(3)]
    allreduce([m.t()[::2] for m in matrices])
    for r, m in enumerate(matrices):
        assert torch.equal(m[:, ::2], torch.full((4, 3), 3.0))
        assert torch.equal(m[:, 1::2], torch.full((4, 3), float(r)))


def test_buffers_in_one_storage_that_share_no_element_are_accepted():
    interleaved = torch.arange(12.0)
    allreduce([interleaved[::3], interleaved[1::3], interleaved[2::3]])
    assert torch.equal(interleaved, torch.tensor([3.0, 12, 21, 30]).repeat_interleave(3))
    columns = torch.ones(40, 40)
    allreduce([columns[:, :20], columns[:, 20:]])
    assert torch.equal(columns, torch.full((40, 40), 2.0))
    halves = torch.ones(6)
    allreduce([halves[:3], halves[3:]])
    assert torch.equal(halves, torch.full((6,), 2.0))
    allreduce([halves[6:], halves[6:]])


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


@pytest.mark.parametrize("what, data", list(overlapping_buffers()))
def test_buffers_that_share_an_element_are_refused_before_anything_changes(what, data):
    before = [x.clone() for x in data]
    with pytest.raises(ValueError, match=r"entries \d and \d overlap in memory"):
        allreduce(data)
    assert all(torch.equal(x, b) for x, b in zip(data, before)), what


def test_the_overlap_error_names_the_entries():
    x = torch.ones(2)
    with pytest.raises(ValueError, match="entries 1 and 3 overlap"):
        allreduce([torch.ones(2), x, torch.ones(2), x])


def refused():
    yield "no tensor", [], "at least one tensor, got none"
    yield "shapes", [torch.ones(2), torch.ones(2), torch.ones(3)], (
        r"shape of entry 2 is torch.Size\(\[3\]\), of entry 0 torch.Size\(\[2\]\)")
    yield "shapes that would broadcast", [torch.ones(2, 2), torch.ones(2)], "shape of entry 1"
    yield "dtypes", [torch.ones(2), torch.ones(2, dtype=torch.float64)], (
        "dtype of entry 1 is torch.float64, of entry 0 torch.float32")
    yield "expanded", [torch.ones(3), torch.ones(1).expand(3)], "entry 1 is an expanded tensor"
    yield "leaf", [torch.ones(2), torch.ones(2, requires_grad=True)], "entry 1 requires grad.*no_grad"
    yield "view of a leaf", [torch.ones(2), torch.ones(3, 2, requires_grad=True)[0]], "entry 1 requires grad"


@pytest.mark.parametrize("what, data, message", list(refused()))
def test_what_cannot_be_summed_in_place_is_refused_before_anything_changes(what, data, message):
    before = [x.detach().clone() for x in data]
    with pytest.raises(ValueError, match=message):
        allreduce(data)
    assert all(torch.equal(x, b) for x, b in zip(data, before)), what


def test_leaves_that_require_grad_may_be_summed_without_grad_mode():
    data = [torch.ones(2, requires_grad=True) for _ in range(2)]
    with torch.no_grad():
        allreduce(data)
    assert all(x.is_leaf and x.requires_grad and x.tolist() == [2, 2] for x in data)


@pytest.mark.gpu
def test_buffers_on_different_devices_are_summed_too():
    devices = [*try_devices(max(2, torch.cuda.device_count())), torch.device("cpu")]
    data = [torch.ones(1, 2, device=d) * (r + 1) for r, d in enumerate(devices)]
    allreduce(data)
    total = sum(range(1, len(devices) + 1))
    assert [x.device.type for x in data] == [d.type for d in devices]
    assert all(x.tolist() == [[total, total]] for x in data)


@pytest.mark.gpu
def test_views_of_one_buffer_on_a_gpu_are_told_apart():
    base = torch.arange(6.0, device="cuda")
    allreduce([base[::2], base[1::2]])
    assert base.tolist() == [1, 1, 5, 5, 9, 9]
    with pytest.raises(ValueError, match="overlap"):
        allreduce([base[:3], base[2:5]])
