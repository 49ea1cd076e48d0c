"""The check of the exercise `ex-no-order`."""

import torch
import torch.distributed as dist
from torch import nn

from d2lpar.ddp import average_in_hooks, trained_params
from d2lpar.launch import run_ranks
from d2lpar.ranks import rank_device
from d2lpar.scratch import distance


def average_at_once(module):
    """The page's."""
    def average(p):
        dist.all_reduce(p.grad.div_(dist.get_world_size()))

    for p in trained_params(module):
        p.register_post_accumulate_grad_hook(average)


def gradients(rank, uses, average):
    """One by layer: of this rank, after a backward in which its examples go through the layers `uses[rank]`."""
    torch.manual_seed(0)
    net = nn.ModuleList(nn.Linear(3, 3, bias=False) for _ in range(4)).double().to(rank_device())
    average(net)
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64, device=rank_device()) + rank
    for place in uses[rank]:
        x = net[place](x)
    x.square().sum().backward()
    return [(torch.zeros_like(p) if p.grad is None else p.grad).cpu() for p in net.parameters()]


def alone(net):
    """Nobody averages."""


def both_ways(rank, uses):
    """Of this rank: its own gradients, averaged at once, and averaged in order."""
    return [gradients(rank, uses, average) for average in (alone, average_at_once, average_in_hooks)]


def check(uses):
    """What is not right yet of the answer, in words, or "Right."."""
    lists = [uses(rank) for rank in range(2)]
    for rank, places in enumerate(lists):
        if not (isinstance(places, list) and places and all(type(i) is int and 0 <= i < 4 for i in places)):
            return f"Not yet: uses({rank}) must be a list of layers, 0 to 3 and at least one, and is {places!r}."
        if len(set(places)) < len(places):
            return f"Not yet: uses({rank}) lists a layer twice."
    if len(lists[0]) != len(lists[1]):
        return (f"Not yet: rank 0 starts {len(lists[0])} allreduces and rank 1 {len(lists[1])}, so one of them "
                "waits forever: that is a mistake that you would notice.")
    found = run_ranks(both_ways, 2, lists, timeout_s=60)
    means = [sum(both) / 2 for both in zip(*(own for own, _, _ in found))]
    far_at_once, far_in_order = (max(distance(rank[way], means) for rank in found) for way in (1, 2))
    if far_in_order > 1e-12:
        return f"Not yet: average_in_hooks is wrong as well, by {far_in_order:.2g}."
    if far_at_once < 1e-12:
        return "Not yet: average_at_once is right: the gradients of both ranks come in one order."
    return "Right."
