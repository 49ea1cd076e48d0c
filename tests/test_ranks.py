"""Tests of d2lpar.ranks: a ring that ranks run themselves is that of virtual devices, bit for bit.

And of what its chapter and its exercises say of ranks that send and receive.
"""

import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist

from d2lpar.collectives import allreduce_ring
from d2lpar.ranks import rank_device, ring_allreduce

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
])
def test_what_cannot_go_round_is_refused_before_anything_is_sent(x, direction, words, group_of):
    for said in group_of(2).run(refused, x, direction):
        assert words in said


def test_outside_of_a_group_there_is_no_rank():
    with pytest.raises(RuntimeError, match="this process is not a rank"):
        rank_device()


# What the chapter says of messages


def pass_on(rank, receives_first):
    """What came from the left, and when, where a rank that does not receive first sends to the right first."""
    k, x, first = dist.get_world_size(), torch.full((1,), float(rank), device=rank_device()), receives_first(rank)
    arrived = torch.zeros_like(x)
    if not first:
        dist.send(x, (rank + 1) % k)
    time.sleep(0.1)  # it takes so long to receive
    dist.recv(arrived, (rank - 1) % k)
    when_s = time.monotonic()
    if first:
        dist.send(x, (rank + 1) % k)
    return arrived.item(), when_s


def test_where_only_rank_0_receives_first_one_message_follows_the_other(group_of):
    came, when_s = zip(*group_of(3).run(pass_on, lambda rank: rank == 0))
    assert came == (2, 0, 1)
    assert when_s[0] < when_s[2] < when_s[1]


@pytest.mark.parametrize("k", [2, 3])
def test_where_every_second_rank_receives_first_all_is_passed_on(k, group_of):
    came, _ = zip(*group_of(k).run(pass_on, lambda rank: rank % 2 == 1, timeout_s=60))
    assert came == tuple((rank - 1) % k for rank in range(k))


def half_barrier(rank):
    x = torch.zeros(1, device=rank_device())
    for other in range(1, dist.get_world_size()):
        if rank == 0:
            dist.recv(x, other)
        elif rank == other:
            dist.send(x, 0)


def come_late(rank, barrier):
    time.sleep(0.3 * rank)
    came_s = time.monotonic()
    barrier(rank)
    return came_s, time.monotonic()


def test_half_a_barrier_passes_the_chapters_test_and_lets_rank_1_go_too_early(group_of):
    came_s, left_s = zip(*group_of(3).run(come_late, half_barrier))
    assert left_s[0] - came_s[0] > left_s[2] - came_s[2] and left_s[1] < max(came_s)
    came_s, left_s = zip(*group_of(3).run(come_late, lambda rank: dist.barrier()))
    assert left_s[0] - came_s[0] > left_s[2] - came_s[2] and min(left_s) >= max(came_s)


SCRIPT = """
import sys
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2)
dist.barrier()
1 / rank
dist.barrier()
"""


@pytest.mark.slow
def test_in_a_script_gloo_tells_a_rank_that_its_peer_has_failed(tmp_path):
    ranks = [subprocess.Popen([sys.executable, "-c", SCRIPT, str(rank), tmp_path / "store"], stderr=subprocess.PIPE,
                              text=True) for rank in range(2)]
    first, second = (rank.communicate(timeout=100)[1] for rank in ranks)
    assert "ZeroDivisionError" in first and "Connection closed by peer" in second
