"""Tests of d2lpar.ranks: collectives and bytes as PyTorch counts them, and spans that lie where the work was."""

import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.debug import CommDebugMode
from torch.profiler import record_function

from d2lpar.ddp import OwnDDP, average_flat, average_gradients
from d2lpar.ranks import Traffic, rank_device, trace_rank

pytestmark = [pytest.mark.usefixtures("one_core"), pytest.mark.timeout(120)]

NUM_BYTES = 3 * (50 * 50 + 50) * 4


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.1)
        return grad


def step_of(way):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(50, 50) for _ in range(3))).to(rank_device())
    run = {"own": lambda: OwnDDP(net, 5000, 10000), "library": lambda: nn.parallel.DistributedDataParallel(net)}
    run = run.get(way, lambda: net)()
    after = {"each": average_gradients, "flat": average_flat}.get(way, lambda net: None)

    def step():
        with record_function("forward"):
            loss = Sleep.apply(run(torch.ones(2, 50, device=rank_device()))).sum()
        loss.backward()
        after(net)

    return step


def on_a_rank(rank):
    counted, spans = {}, {}
    for way in ("none", "each", "flat", "own", "library"):
        step = step_of(way)
        for _ in range(2):
            step()
        with CommDebugMode() as theirs, Traffic() as ours:
            step()
        counted[way] = theirs.get_total_counts(), dict(ours.counts), ours.total_bytes
        spans[way] = trace_rank(rank, step)
    with Traffic() as others:
        x, parts = torch.ones(6, device=rank_device()), torch.ones(3, device=rank_device())
        dist.broadcast(x, 0)
        dist.reduce_scatter_tensor(parts, x)
        dist.all_gather_into_tensor(x, parts)
        dist.all_gather([parts.clone(), parts.clone()], parts)
        message = dist.irecv(x, 1 - rank)
        dist.send(parts.repeat(2), 1 - rank)
        message.wait()
    return counted, spans, dict(others.counts), others.total_bytes


@pytest.fixture(scope="module")
def ranks(group_of):
    return group_of(2).run(on_a_rank, timeout_s=100)


@pytest.mark.parametrize("way, count", [("none", 0), ("each", 6), ("flat", 1), ("own", 3), ("library", 1)])
def test_collectives_are_counted_as_pytorch_counts_them_and_all_gradients_are_sent(ranks, way, count):
    for counted, *_ in ranks:
        theirs, ours, size = counted[way]
        assert theirs == sum(ours.values()) == count
        assert set(ours) == ({"allreduce"} if count else set())
        assert size == (NUM_BYTES if count else 0)


def test_messages_are_counted_too_and_bytes_are_those_of_what_is_given_first(ranks):
    for _, _, others, size in ranks:
        assert others == {"broadcast": 1, "reduce_scatter_base": 1, "allgather_base": 1, "allgather": 1, "send": 1, "recv": 1}
        assert size == 24 + 12 + 24 + 24 + 24 + 24


@pytest.mark.parametrize("way, count", [("none", 0), ("each", 6), ("flat", 1), ("own", 3), ("library", 1)])
def test_every_collective_has_its_span_and_backward_holds_what_it_computes(ranks, way, count):
    for rank, (_, spans, *_) in enumerate(ranks):
        assert {span.rank for span in spans[way]} == {rank}
        assert [span.start_s for span in spans[way]] == sorted(span.start_s for span in spans[way])
        by_name = {what: [span for span in spans[way] if span.what == what]
                   for what in ("forward", "backward", "all_reduce")}
        assert sum(map(len, by_name.values())) == len(spans[way])
        [forward], [backward] = by_name["forward"], by_name["backward"]
        assert 0 <= forward.start_s < forward.end_s <= backward.start_s
        assert backward.end_s - backward.start_s >= 0.1, "the sleep"
        assert len(by_name["all_reduce"]) == count, "the barrier before the step is none of it"
        for span in by_name["all_reduce"]:
            assert backward.start_s + 0.1 < span.start_s < span.end_s
            if way in ("each", "flat"):
                assert span.start_s > backward.end_s
