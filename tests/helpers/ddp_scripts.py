"""Trainings as readers write them, right and wrong, each as the function that `diagnose` takes."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from d2lpar.larger_batches.batchnorm import convert_batchnorm


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


class Recurrent(nn.LSTM):
    """Drops between its layers."""

    def forward(self, X):
        return super().forward(X[:, None])[0][:, -1]


def recurrent_net():
    return nn.Sequential(Recurrent(6, 5, 2, dropout=0.5, batch_first=True), nn.Linear(5, 4))


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
    """The rule of one process: the sum over the shard, divided by the whole batch."""
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


def train_by_closures(net, batches, loss=F.cross_entropy, wrap=DDP, optimizer=sgd, before_step=lambda net: None):
    """As train_ddp, for optimizers that ask for the loss themselves."""
    net = wrap(net)
    optimizer = optimizer(net)
    for X, y in batches:
        def closure(X=X, y=y):
            optimizer.zero_grad()
            here = loss(net(X), y)
            here.backward()
            before_step(net)
            return here
        optimizer.step(closure)


def closures(**changes) -> Callable:
    return lambda net, batches: train_by_closures(net, batches, **changes)


def lbfgs(net):
    return torch.optim.LBFGS(net.parameters(), 0.1, max_iter=3)


class NoGradient(torch.optim.SGD):
    """Takes its gradients elsewhere than from `grad`."""

    def step(self, closure=None):
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.grad = None
                p -= 0.1


def step_without_gradients(net, batches):
    optimizer = NoGradient(broadcast(net).parameters(), 0.1)
    for _ in batches:
        optimizer.zero_grad()
        optimizer.step()


def average_parameters(net, batches, optimizer=sgd):
    """Each rank steps by itself, and then all meet in the middle."""
    optimizer = optimizer(broadcast(net))
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        for p in net.parameters():
            dist.all_reduce(p.data)
            p.data /= dist.get_world_size()


def clip_values(net):
    nn.utils.clip_grad_value_(net.parameters(), 0.02)


def average_weights_only(net):
    for p in net.parameters():
        if p.dim() > 1:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def parameters_only(net):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    net[1].running_mean += dist.get_rank()
    return net


def copied(net):
    return torch.optim.SGD(copy.deepcopy(net).parameters(), 0.1)


def by_environment(net):
    k, rank = (int(os.environ[name]) for name in ("WORLD_SIZE", "RANK"))
    assert (k, rank, rank) == (dist.get_world_size(), dist.get_rank(), int(os.environ["LOCAL_RANK"]))
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= k


def whole_script(net, batches):
    dist.init_process_group("gloo")
    losses = train_ddp(net, batches)
    dist.destroy_process_group()
    return losses


def waits_in_step_2(net, batches):
    """And sums, in all steps."""
    optimizer = sgd(broadcast(net))
    for t, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        sum_up(net)
        optimizer.step()
        if t == 1 and dist.get_rank() == 0 and dist.get_world_size() > 1:
            dist.barrier()


def equal_shards_only(scores, y):
    """Needs tensors of one shape on all ranks."""
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(y)]))
    if len({int(n) for n in sizes}) > 1:
        raise ValueError("unequal shards")
    return F.cross_entropy(scores, y)


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
    "closures": (closures(), mlp, ["mean of means"]),
    "closures, LBFGS": (closures(loss=whole_batch_loss, optimizer=lbfgs), mlp, []),
    "parameters averaged after plain SGD": (average_parameters, mlp, ["parameters averaged"]),
    "averaged, then values clipped": (ddp(before_step=clip_values), mlp, ["unequal shards"]),
    "values clipped, whole batch": (ddp(loss=whole_batch_loss, before_step=clip_values), mlp, []),
    "fails on unequal shards": (ddp(loss=equal_shards_only), mlp, ["unequal shards"]),
    "a whole script": (whole_script, mlp, ["mean of means"]),
    "environment": (by_hand(before_step=by_environment), mlp, ["mean of means"]),
    "dropout between recurrent layers": (ddp(loss=whole_batch_loss), recurrent_net, ["dropout", "not reached"]),
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
    "closures, summed": (closures(loss=whole_batch_loss, wrap=broadcast, before_step=sum_up), mlp, ["summed"]),
    "closures, not synchronised": (closures(wrap=broadcast), mlp, ["not synchronised"]),
    "steps without gradients": (step_without_gradients, mlp, ["no gradient"]),
    "parameters averaged after Adam": (lambda net, batches: average_parameters(net, batches, adam), mlp, ["parameters averaged"]),
    "biases left out": (by_hand(before_step=average_weights_only), mlp, ["not exchanged"]),
    "buffers left out": (ddp(wrap=parameters_only, before_step=average), batchnorm_net, ["different buffers"]),
    "an optimizer of a copy": (ddp(optimizer=copied), mlp, ["other parameters"]),
    "random": (ddp(loss=noisy_loss), mlp, ["random numbers"]),
    "summed, with BatchNorm": (by_hand(before_step=sum_up), batchnorm_net, ["summed"]),
    "divided twice, with dropout": (ddp(loss=newcomers_loss), dropout_net, ["divided twice"]),
}
