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
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from d2lpar.launch import RankGroup
from d2lpar.ranks import Traffic
from d2lpar.scratch import distance

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


def left_after(rank: int, by_network: bool) -> list[bool]:
    """Which parameters still have a gradient after a `zero_grad` between the forward and the backward pass."""
    net = layers()
    fully_shard(net[0], mesh=mesh()), fully_shard(net, mesh=mesh())  # the last layer belongs to the root
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(inputs(rank)).sum().backward()
    net(inputs(rank))
    (net if by_network else optimizer).zero_grad()
    return [p.grad is not None for p in optimizer.param_groups[0]["params"]]


def test_zero_grad_of_the_network_misses_the_gradients_of_the_root_while_its_parameters_are_gathered(group_of: Callable[[int], RankGroup]) -> None:
    group = group_of(2)
    assert group.run(left_after, True) == [[False, False, True, True]] * 2
    assert group.run(left_after, False) == [[False] * 4] * 2


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


def four_ranks_and_three_rows(rank: int) -> int:
    layer = nn.Linear(2, 3)
    fully_shard(layer, mesh=init_device_mesh("cpu", (4,)))
    return layer.weight.to_local().shape[0]


def test_of_three_rows_the_fourth_rank_holds_none(group_of: Callable[[int], RankGroup]) -> None:
    assert group_of(4).run(four_ranks_and_three_rows) == [1, 1, 1, 0]


def sum_in_float32(rank: int, shape: tuple[int, ...], force: bool) -> str | float:
    net, alone = layers().float(), layers().float()
    fully_shard(net, mesh=init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape):]))
    net.set_gradient_divide_factor(1.0)
    net.set_force_sum_reduction_for_comms(force)
    try:
        net(inputs(rank).float()).sum().backward()
    except RuntimeError as error:
        return str(error)
    sum(alone(inputs(r).float()).sum() for r in range(2)).backward()
    return distance([p.grad.full_tensor() for p in net.parameters()], [p.grad for p in alone.parameters()])


def test_in_float32_gloo_leaves_the_division_out_only_if_it_may_just_add(group_of: Callable[[int], RankGroup]) -> None:
    group = group_of(2)
    for shape, force in (((2,), True), ((2, 1), True), ((2, 1), False)):
        assert all(isinstance(far, float) and far < 1e-5 for far in group.run(sum_in_float32, shape, force))
    assert group.run(sum_in_float32, (2,), False) == ["Cannot use ReduceOp.PREMUL_SUM with Gloo"] * 2


def past_the_root(rank: int) -> tuple[bool, str]:
    net, alone = blockwise(layers()), layers()
    out = inputs(rank)
    for layer in net:
        out = layer(out)
    out.sum().backward()
    (sum(alone(inputs(r)).sum() for r in range(2)) / 2).backward()
    right = distance([p.grad.to_local() for p in net.parameters()], [p.grad for p in alone.parameters()]) <= 1e-12
    try:
        net(inputs(rank))
    except RuntimeError as error:
        return right, str(error)
    return right, ""


def test_sharded_by_block_layer_by_layer_is_right_but_then_the_root_refuses(group_of: Callable[[int], RankGroup]) -> None:
    for right, error in group_of(2).run(past_the_root):
        assert right and "requires running forward through the root module first" in error


class WithLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


def by_a_method(rank: int, register: bool) -> bool:
    net, alone = WithLoss(), WithLoss()
    fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
    if register:
        register_fsdp_forward_method(net, "loss")
    try:
        net.loss(inputs(rank)).backward()
    except RuntimeError:
        return False
    (sum(alone.loss(inputs(r)) for r in range(2)) / 2).backward()
    return distance([p.grad.full_tensor() for p in net.parameters()], [p.grad for p in alone.parameters()]) <= 1e-12


def test_a_method_that_is_registered_counts_as_a_forward_pass(group_of: Callable[[int], RankGroup]) -> None:
    group = group_of(2)
    assert group.run(by_a_method, True) == [True] * 2 and group.run(by_a_method, False) == [False] * 2


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = (nn.Linear(1, 2, bias=False).double() for _ in range(3))

    def forward(self, x: torch.Tensor, heads: str) -> torch.Tensor:
        return sum(getattr(self, name)(x) for name in heads)


def heads(rank: int, uses: list[str], together: bool, switch: bool) -> tuple[bool, list[float | None]]:
    """Whether the output is right, and the first value of this rank's part of each gradient."""
    net, alone, x = Heads(), Heads(), torch.full((1, 1), rank + 1.0, dtype=torch.float64)
    mesh = init_device_mesh("cpu", (2,))
    for module in (net.a, [net.b, net.c]) if together else net.children():
        fully_shard(module, mesh=mesh)
    fully_shard(net, mesh=mesh).set_reduce_scatter_unused_params(switch)
    out = net(x, uses[rank])
    out.sum().backward()
    first = [None if p.grad is None else p.grad.to_local()[0].item() for p in net.parameters()]
    return torch.equal(out, alone(x, uses[rank])), first


def test_two_heads_in_one_group_and_the_switch_are_right(group_of: Callable[[int], RankGroup]) -> None:
    group = group_of(2)
    assert group.run(heads, ["ab", "ac"], True, True) == [(True, [1.5, 0.5, 1.0])] * 2
    assert group.run(heads, ["abc", "ab"], True, True) == [(True, [1.5, 1.5, 0.5])] * 2


def test_of_heads_that_no_rank_uses_the_switch_makes_zeros(group_of: Callable[[int], RankGroup]) -> None:
    group = group_of(2)
    assert group.run(heads, ["ab", "ab"], True, True) == [(True, [1.5, 1.5, 0.0])] * 2
    assert group.run(heads, ["ab", "ab"], True, False) == [(True, [1.5, 1.5, None])] * 2


def test_heads_in_groups_of_their_own_compute_with_rows_of_the_other_in_spite_of_the_switch(group_of: Callable[[int], RankGroup]) -> None:
    found = group_of(2).run(heads, ["ab", "ac"], False, True)
    assert found == [(False, [1.5, 1.5, None]), (False, [1.5, None, 1.5])]
