"""Tests of d2lpar.processes.ranks: a ring that ranks run themselves is that of virtual devices, bit for bit."""

import pytest
import torch

from d2lpar.processes.ranks import rank_device, ring_allreduce
from d2lpar.sums.collectives import allreduce_ring

SIZES = [0, 1, 2, 7, 1000]


def rings(rank, inputs, direction):
    sums = [x.to(rank_device()) for x in inputs[rank]]
    for x in sums:
        ring_allreduce(x, direction)
    return [x.cpu() for x in sums]


def refused(rank, x, direction):
    before = x.clone()
    with pytest.raises(ValueError) as error:
        ring_allreduce(x, direction)
    assert torch.equal(x, before)
    return str(error.value)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_ring_of_ranks_has_the_bits_of_the_ring_of_devices(k, group_of):
    random = torch.Generator().manual_seed(k)
    inputs = [[torch.randn(n, generator=random) for n in SIZES] + [torch.randn(3, 5, generator=random).double()]
              for _ in range(k)]
    expected = [[x.clone() for x in row] for row in inputs]
    for column in zip(*expected):
        allreduce_ring(column)
    for direction in (1, -1):
        for rank, sums in enumerate(group_of(k).run(rings, inputs, direction)):
            for x, y, *others in zip(sums, expected[rank], *[row for row in inputs]):
                torch.testing.assert_close(x, sum(others))
                assert direction == -1 or torch.equal(x, y)
                assert k == 1 or x.numel() == 0 or not torch.equal(x, others[rank]), "something was added"


@pytest.mark.parametrize("x, direction, words", [
    (torch.zeros(2, 3).T, 1, "x must be contiguous, got strides"),
    (torch.zeros(1).expand(3), 1, "x is an expanded tensor"),
    (torch.zeros(3, requires_grad=True), 1, "x requires grad"),
    (torch.zeros(3), 0, "direction 1 or -1, got 0"),
    (torch.zeros(3), 1.0, "direction 1 or -1, got 1.0"),
    (torch.zeros(3), True, "direction 1 or -1, got True"),
])
def test_what_cannot_go_round_is_refused_before_anything_is_sent(x, direction, words, group_of):
    for said in group_of(2).run(refused, x, direction):
        assert words in said


def test_outside_of_a_group_there_is_no_rank():
    with pytest.raises(RuntimeError, match="this process is no rank"):
        rank_device()
