"""An evaluation on several ranks is that of one worker, whatever the number of examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from d2lpar.ddp import count_right_on_ranks, unwrap_ddp
from d2lpar.launch import RankGroup
from d2lpar.ranks import rank_device
from d2lpar.sharding import shard_parameters

SIZES = (1, 2, 3, 4, 7, 20)
X = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
Y = torch.randint(3, (20,), generator=torch.Generator().manual_seed(1))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.9), nn.Linear(8, 3))


def by_hand(n: int) -> tuple[int, int]:
    right = [int(scores.argmax()) == int(label) for scores, label in zip(network().eval()(X), Y)]
    return sum(right[:n]), n


def own_batches(rank: int, n: int, b: int = 2) -> list[tuple[Tensor, Tensor]]:
    k = dist.get_world_size()
    return list(zip(X[:n][rank::k].split(b), Y[:n][rank::k].split(b)))


def no_graph(graph: Any, example_inputs: Any) -> None:
    raise AssertionError("the compiled wrapper was called")


def on_a_rank(rank: int) -> dict[str, Any]:
    net = network().to(rank_device())
    net[2].eval()  # as its owner has left it
    wrapped = DistributedDataParallel(net)
    before = [b.clone() for b in net.buffers()]
    found: dict[str, Any] = {
        "plain": [count_right_on_ranks(net, own_batches(rank, n)) for n in SIZES],
        # a forward pass of the wrapped module would be a collective, and here the ranks have other numbers of them
        "wrapped": [count_right_on_ranks(wrapped, own_batches(rank, n, 1)) for n in SIZES],
        "compiled": [count_right_on_ranks(torch.compile(wrapped, backend=no_graph), own_batches(rank, n, 1)) for n in SIZES],
        "nothing": count_right_on_ranks(net, []),
        "modes": [m.training for m in net] + [wrapped.training],
        "unchanged": all(map(torch.equal, before, net.buffers())),
        "graph": torch.is_grad_enabled() and all(p.grad is None for p in net.parameters()),
    }
    found["refused"] = complaints(net) if dist.get_world_size() == 1 else []
    return found


def complaints(net: nn.Module) -> list[str]:
    found = []
    for batches in [[(X, Y[:3])], [(X, Y[:, None])]]:
        try:
            count_right_on_ranks(net, batches)
        except ValueError as error:
            found.append(str(error))
    return [*found, str([m.training for m in net])]


@pytest.fixture(scope="module", params=(1, 2, 3))
def ranks(request: pytest.FixtureRequest, group_of: Callable[[int], RankGroup]) -> list[dict]:
    return group_of(request.param).run(on_a_rank, timeout_s=120)


@pytest.mark.parametrize("way", ("plain", "wrapped", "compiled"))
def test_every_rank_knows_what_one_worker_finds_for_any_number_of_examples(ranks: list[dict], way: str) -> None:
    for rank in ranks:
        assert rank[way] == [by_hand(n) for n in SIZES]
    assert 0 < by_hand(20)[0] < 20


def test_whole_numbers_come_back_and_no_examples_are_none(ranks: list[dict]) -> None:
    for rank in ranks:
        assert rank["nothing"] == (0, 0)
        assert {type(number) for pair in rank["plain"] for number in pair} == {int}


def test_the_network_is_left_as_it_was(ranks: list[dict]) -> None:
    for rank in ranks:
        assert rank["modes"] == [True, True, False, True, True]
        assert rank["unchanged"] and rank["graph"]


def test_what_makes_no_sense_is_refused_and_the_network_trains_on(ranks: list[dict]) -> None:
    if len(ranks) == 1:
        *errors, modes = ranks[0]["refused"]
        assert modes == "[True, True, False, True]"
        assert len(errors) == 2 and all("one label per example" in error for error in errors)


def by_rank_0(n: int) -> tuple[int, int]:
    """What rank 0 of two finds on its own share of the first n examples."""
    mine = torch.arange(0, n, 2)
    return int((network().eval()(X[mine]).argmax(1) == Y[mine]).sum()), len(mine)


def sharded(rank: int) -> list[str]:
    halves, wholes = network(), network()
    shard_parameters(halves)
    fully_shard(wholes)
    said = []
    for net in (halves, wholes, DistributedDataParallel(network()), fully_shard(network(), mesh=init_device_mesh(
            "cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")))):
        try:
            said.append(str(count_right_on_ranks(net, own_batches(rank, 3 * (rank == 0)))))
        except ValueError as error:
            said.append(str(error)[:22])
    return said


def test_a_sharded_network_is_refused_since_ranks_with_fewer_minibatches_would_keep_it_waiting(
        group_of: Callable[[int], RankGroup]) -> None:
    for said in group_of(2).run(sharded, timeout_s=60):
        assert said[:2] == ["the network is sharded"] * 2
        assert said[2] == said[3] == str(by_rank_0(3))


def test_outside_of_a_group_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="not a rank"):
        count_right_on_ranks(network(), [])


def test_a_wrapper_in_a_wrapper_is_refused_as_its_forward_pass_may_wait_for_ever() -> None:
    class Wrapped(nn.parallel.DistributedDataParallel):
        def __init__(self, module: nn.Module) -> None:
            nn.Module.__init__(self)  # without a group
            self.module = module

    net = nn.Linear(1, 1)
    assert unwrap_ddp(Wrapped(net)) is net and unwrap_ddp(net) is net
    assert unwrap_ddp(torch.compile(Wrapped(net))) is net
    assert unwrap_ddp(alone := torch.compile(net)) is alone  # has no collective, and stays compiled
    with pytest.raises(ValueError, match="hand over what it has wrapped"):
        unwrap_ddp(nn.Sequential(Wrapped(net)))
