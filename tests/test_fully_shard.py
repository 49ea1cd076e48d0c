"""What the chapters on sharding and on `fully_shard` say of `fully_shard`, and do not show in a cell."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from d2lpar.launch import RankGroup
from d2lpar.ranks import Traffic

pytestmark = pytest.mark.slow


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def inputs(rank: int) -> torch.Tensor:
    return torch.full((3, 4), rank + 1.0, dtype=torch.float64)


def blockwise(net: nn.Sequential) -> nn.Module:
    for block in (net[0], net[2]):
        fully_shard(block, mesh=mesh())
    return fully_shard(net, mesh=mesh())


def ratios(rank: int, loop: bool) -> list[float]:
    """Each gradient, as a multiple of the sum over the ranks, if the network or all of its modules are told not to divide."""
    net, alone = blockwise(layers()), layers()
    for module in net.modules() if loop else [net]:
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
    net(inputs(rank)).sum().backward()
    sum(alone(inputs(r)).sum() for r in range(2)).backward()
    return [round((p.grad.to_local().norm() / q.grad.norm()).item(), 9) for p, q in zip(net.parameters(), alone.parameters())]


def test_the_division_is_left_out_by_every_module_only_if_each_is_told(group_of: Callable[[int], RankGroup]) -> None:
    group = group_of(2)
    assert group.run(ratios, True) == [[1.0] * 4] * 2
    assert group.run(ratios, False) == [[0.5] * 4] * 2  # all parameters belong to the blocks


def one_or_many(rank: int) -> list[int]:
    counts = []
    for wrap in (lambda net: fully_shard(net, mesh=mesh()), blockwise):
        net = wrap(layers())
        with Traffic() as sent:
            net(inputs(rank)).sum().backward()
        counts.append(sent.counts["allreduce"])
    return counts


def test_wrapped_once_it_sends_one_message_and_wrapped_by_block_one_for_each(group_of: Callable[[int], RankGroup]) -> None:
    assert group_of(2).run(one_or_many) == [[1, 2]] * 2


def means(rank: int) -> float:
    net = fully_shard(nn.Sequential(nn.BatchNorm1d(4)).double(), mesh=mesh())
    net(inputs(rank)).sum().backward()
    net(inputs(rank)).sum().backward()
    return net[0].running_mean[0].item()


def test_buffers_are_never_sent(group_of: Callable[[int], RankGroup]) -> None:
    first, second = group_of(2).run(means)
    assert first != second


def moved(rank: int, early: bool) -> bool:
    net = layers()
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fully_shard(net, mesh=mesh())
    if not early:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(inputs(rank)).sum().backward()
    optimizer.step()
    return any(not torch.equal(p.to_local(), q) for p, q in zip(net.parameters(), before))


def test_an_optimizer_that_was_made_before_does_not_train(group_of: Callable[[int], RankGroup]) -> None:
    group = group_of(2)
    assert group.run(moved, False) == [True] * 2
    assert group.run(moved, True) == [False] * 2


def accumulated(rank: int) -> dict[str, Any]:
    net, alone = fully_shard(layers(), mesh=mesh()), layers()
    with Traffic() as sent:
        net.set_requires_gradient_sync(False)
        net(inputs(rank)).sum().backward()
        silent = sent.counts.total()
        net.set_requires_gradient_sync(True)
        net(inputs(rank)).sum().backward()
    sum(2 * alone(inputs(r)).sum() / 2 for r in range(2)).backward()
    state = net.state_dict()
    return {"silent": silent, "right": all(torch.allclose(p.grad.to_local(), q.grad, atol=1e-12)
                                           for p, q in zip(net.parameters(), alone.parameters())),
            "no_sync": hasattr(net, "no_sync"),
            "whole": all(torch.equal(x.full_tensor(), alone.state_dict()[name]) for name, x in state.items())}


def test_it_accumulates_without_no_sync_and_its_state_has_full_tensors(group_of: Callable[[int], RankGroup]) -> None:
    assert group_of(2).run(accumulated) == [{"silent": 0, "right": True, "no_sync": False, "whole": True}] * 2


def past_it(rank: int) -> tuple[float, bool]:
    net = fully_shard(layers(), mesh=mesh())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = [p.to_local().detach().clone() for group in optimizer.param_groups for p in group["params"]]
    with torch.no_grad():
        net(inputs(rank))
    out = inputs(rank)
    for layer in net:
        out = layer(out)
    out.sum().backward()
    norm = next(net.parameters()).grad.norm().item()
    optimizer.step()
    after = [p.to_local().detach() for group in optimizer.param_groups for p in group["params"]]
    return norm, all(map(torch.equal, before, after))


def test_layer_by_layer_after_an_evaluation_the_optimizer_learns_nothing(group_of: Callable[[int], RankGroup]) -> None:
    (first, still), (second, still_too) = group_of(2).run(past_it)
    assert first != second and still and still_too


def adafactor(rank: int) -> str:
    net = layers()
    fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    net(inputs(rank)).sum().backward()
    try:
        torch.optim.Adafactor(net.parameters()).step()
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_adafactor_cannot_use_shards(group_of: Callable[[int], RankGroup]) -> None:
    for message in group_of(2).run(adafactor):
        assert "Sharding propagation failed" in message


def load_what_rank_0_has(rank: int, rows: int) -> tuple[str, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Linear(4, rows)
    fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    torch.save(net.state_dict(), file := io.BytesIO())
    dist.broadcast_object_list(sent := [file.getvalue()], 0)
    error = ""
    try:
        net.load_state_dict(torch.load(io.BytesIO(sent[0]), weights_only=False))
    except RuntimeError as raised:
        error = str(raised)
    return error, net.weight.to_local().detach()


def test_what_rank_0_saves_makes_a_patchwork_silently_if_the_shards_have_equal_shapes(group_of: Callable[[int], RankGroup]) -> None:
    (first, on_0), (second, on_1) = group_of(2).run(load_what_rank_0_has, 6)
    assert first == second == "" and torch.equal(on_0, on_1)
    (first, _), (second, _) = group_of(2).run(load_what_rank_0_has, 5)
    assert first == "" and second
