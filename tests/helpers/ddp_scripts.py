"""Trainings as readers write them, right and wrong, each as the function that `diagnose` takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from d2lpar.batchnorm import convert_batchnorm


class Pair(nn.Module):
    """A frozen layer, a tied one, and one that is there for nothing."""

    def __init__(self, spare: bool = False) -> None:
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 4)
        self.frozen.requires_grad_(False)
        self.again = self.last  # tied
        if spare:
            self.spare = nn.Linear(3, 3)

    def forward(self, X):
        hidden = torch.tanh(self.frozen(torch.tanh(self.first(X))))
        return self.last(hidden) + self.again(hidden.flip(0).flip(0) ** 2)


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))


def batchnorm_net():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4))


def dropout_net():
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(), nn.Tanh(), nn.Linear(5, 4))


def sgd(net, lr=0.5):
    return torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr, momentum=0.9)


def train_ddp(net, batches, loss=F.cross_entropy, wrap=DDP, optimizer=sgd,
              before_step=lambda net: None):
    """A plain script with DDP; the rest of the arguments is what somebody changed in it."""
    net = wrap(net)
    optimizer, losses = optimizer(net), []
    for X, y in batches:
        optimizer.zero_grad()
        here = loss(net(X), y)
        here.backward()
        before_step(net)
        optimizer.step()
        losses.append(here.item())
    return losses


def ddp(**changes) -> Callable:
    return lambda net, batches: train_ddp(net, batches, **changes)


def broadcast(net):
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    return net


def as_it_is(net):
    return net


def average(net, divisor=None):
    for p in net.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= divisor or dist.get_world_size()


def sum_up(net):
    average(net, 1)


def by_hand(**changes) -> Callable:
    """A script that broadcasts and averages by itself."""
    return ddp(**{"wrap": broadcast, "before_step": average} | changes)


def whole_batch_loss(scores, y):
    n = torch.tensor(float(len(y)))
    dist.all_reduce(n)
    return F.cross_entropy(scores, y, reduction="sum") * dist.get_world_size() / n


def newcomers_loss(scores, y):
    """Chapter 1's rule: the sum over the shard, divided by the whole batch."""
    n = torch.tensor(float(len(y)))
    dist.all_reduce(n)
    return F.cross_entropy(scores, y, reduction="sum") / n


def clip(net):
    nn.utils.clip_grad_norm_(net.parameters(), 0.05)


def clip_then_average(net):
    clip(net)
    average(net)


def clip_values_then_average(net):
    nn.utils.clip_grad_value_(net.parameters(), 0.01)
    average(net)


def sum_then_clip(net):
    average(net, 1)
    clip(net)


def average_then_clip(net):
    average(net)
    clip(net)


def average_parameters_in_hooks(net):
    broadcast(net)

    def hook(p):
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(hook)
    return net


def accumulate(net, batches, careful=True):
    """Every minibatch in two halves, the first of them without communication."""
    net = DDP(net)
    optimizer = sgd(net)
    for X, y in batches:
        optimizer.zero_grad()
        halves = list(zip(X.tensor_split(2), y.tensor_split(2)))
        for i, (A, c) in enumerate(halves):
            with net.no_sync() if i == 0 and careful else nullcontext():
                (F.cross_entropy(net(A), c, reduction="sum") / len(y)).backward()
        optimizer.step()


def never_synchronised(net, batches):
    net = DDP(net)
    optimizer = sgd(net)
    for X, y in batches:
        optimizer.zero_grad()
        with net.no_sync():
            F.cross_entropy(net(X), y).backward()
        optimizer.step()


def train_with_replaced_head(net, batches):
    net = DDP(net)
    net.module[2] = nn.Linear(5, 4).double()
    optimizer = sgd(net)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()


def unfreeze_later(net, batches):
    net[0].requires_grad_(False)
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for t, (X, y) in enumerate(batches):
        if t == 1:
            net.module[0].requires_grad_(True)
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()


def reduce_to_rank_0(net):
    for p in net.parameters():
        dist.reduce(p.grad, 0)
        p.grad /= dist.get_world_size()


def own_rate(net):
    return torch.optim.SGD(net.parameters(), 0.1 * (1 + dist.get_rank()))


def rate_times_ranks(net):
    return torch.optim.SGD(net.parameters(), 0.1 * dist.get_world_size())


def adam(net):
    return torch.optim.Adam(net.parameters(), 0.01)


def poisoned_loss(scores, y):
    return F.cross_entropy(scores, y) * (float("nan") if dist.get_rank() == 1 else 1.0)


def contrastive_loss(scores, y):
    return F.cross_entropy(scores @ scores.T, torch.arange(len(y)))


def noisy_loss(scores, y):
    return F.cross_entropy(F.dropout(scores), y)


def no_step(net, batches):
    pass


def hand_made_hooks(net):
    """Gradients averaged during backward."""
    broadcast(net)

    def hook(p):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()

    for p in net.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(hook)
    return net


def synchronised_batchnorm(net):
    return DDP(convert_batchnorm(net))


def unused_allowed(net):
    return DDP(net, find_unused_parameters=True)


# what diagnose must find: a training, a network, the names of faults, and of notes
RIGHT = {
    "DDP, mean loss": (ddp(), mlp, ["mean of means"]),
    "DDP, frozen and tied": (ddp(), Pair, ["mean of means"]),
    "DDP, sum over the whole batch": (ddp(loss=whole_batch_loss), mlp, []),
    "DDP, sum, frozen and tied": (ddp(loss=whole_batch_loss), Pair, []),
    "DDP, sum, Adam": (ddp(loss=whole_batch_loss, optimizer=adam), mlp, []),
    "DDP, clipped after": (ddp(loss=whole_batch_loss, before_step=clip), mlp, []),
    "by hand, mean loss": (by_hand(), mlp, ["mean of means"]),
    "by hand, sum": (by_hand(loss=whole_batch_loss), Pair, []),
    "by hand, summed as it should": (by_hand(loss=newcomers_loss, before_step=sum_up), Pair, ["reported loss"]),
    "by hand, clipped after": (by_hand(before_step=average_then_clip), mlp, ["mean of means"]),
    "hooks": (ddp(wrap=hand_made_hooks), Pair, ["mean of means"]),
    "accumulated with no_sync": (accumulate, mlp, ["mean of means"]),
    "accumulated without no_sync": (lambda net, batches: accumulate(net, batches, careful=False), mlp, ["mean of means"]),
    "synchronised BatchNorm": (ddp(wrap=synchronised_batchnorm, loss=whole_batch_loss), batchnorm_net, []),
    "BatchNorm": (ddp(loss=whole_batch_loss), batchnorm_net, ["BatchNorm"]),
    "dropout": (ddp(loss=whole_batch_loss), dropout_net, ["dropout"]),
    "an unused layer": (ddp(loss=whole_batch_loss, wrap=unused_allowed), lambda: Pair(spare=True), ["not reached"]),
    "rate times ranks": (ddp(loss=whole_batch_loss, optimizer=rate_times_ranks), mlp, ["another rate"]),
}
WRONG = {
    "summed": (by_hand(before_step=sum_up), mlp, ["summed"]),
    "divided twice": (ddp(loss=newcomers_loss), mlp, ["divided twice"]),
    "no broadcast": (by_hand(wrap=as_it_is), mlp, ["different start"]),
    "not synchronised": (ddp(wrap=broadcast), mlp, ["not synchronised"]),
    "no_sync for ever": (never_synchronised, mlp, ["not synchronised"]),
    "parameters averaged": (ddp(wrap=average_parameters_in_hooks), mlp, ["parameters averaged"]),
    "clipped before the sum": (by_hand(before_step=clip_then_average), mlp, ["clipped before the sum"]),
    "values clipped before the sum": (by_hand(before_step=clip_values_then_average), mlp, ["another gradient"]),
    "summed, then clipped": (by_hand(before_step=sum_then_clip), mlp, ["scaled"]),
    "replaced": (train_with_replaced_head, mlp, ["different start", "not synchronised", "raises"]),
    "unfrozen": (unfreeze_later, mlp, ["not exchanged"]),
    "only rank 0 has the sum": (by_hand(before_step=reduce_to_rank_0), mlp, ["different gradients"]),
    "own rates": (ddp(optimizer=own_rate), mlp, ["drift"]),
    "NaN on one rank": (ddp(loss=poisoned_loss), mlp, ["NaN"]),
    "contrastive": (ddp(loss=contrastive_loss), mlp, ["not a mean over examples"]),
    "random": (ddp(loss=noisy_loss), mlp, ["random numbers"]),
    "summed, with BatchNorm": (by_hand(before_step=sum_up), batchnorm_net, ["summed"]),
    "divided twice, with dropout": (ddp(loss=newcomers_loss), dropout_net, ["divided twice"]),
}
