"""Training functions as people write them, right and wrong: what `diagnose` is tried on, and what its manual runs.

Each is the function `train(net, batches)` of a script, most of them one plain script with one thing changed.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from d2lpar.batchnorm import convert_batchnorm


def train_with_sum(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for X, y in batches:
        count = torch.tensor(len(y))
        dist.all_reduce(count)  # the examples of all ranks
        loss = F.cross_entropy(net(X), y, reduction="sum") / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def make_net():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))


# Networks


class Pair(nn.Module):
    """A frozen layer, a tied one, and, if wanted, one that is there for nothing."""

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


class OwnBatchNorm(nn.Module):
    """BatchNorm by a function, not by a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 4)

    def forward(self, X):
        return self.last(torch.tanh(F.batch_norm(self.first(X), None, None, training=True)))


class TwoHeads(nn.Module):
    """Two outputs, of which a loss may use one, and a layer that is there for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.other = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(5, 2)
        self.spare = nn.Linear(3, 3)

    def forward(self, X):
        hidden = torch.tanh(self.body(X))
        return self.head(hidden), self.other(hidden)


class Recurrent(nn.Module):
    """Drops between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.out = nn.LSTM(6, 5, 2, dropout=0.5, batch_first=True), nn.Linear(5, 4)

    def forward(self, X):
        return self.out(self.layers(X[:, None])[0][:, -1])


class Tagger(nn.Module):
    """A label for each of six words, from nothing but the word."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(1, 5), nn.Linear(5, 4)

    def forward(self, X):
        return self.head(torch.tanh(self.embed(X[..., None]))).transpose(1, 2)


def examples(make_net: Callable, n: int = 48) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch for one of these networks; of a Tagger's sentences, labels of -100 stand where they have ended."""
    draw = torch.Generator().manual_seed(0)
    X, rule = torch.randn(n, 6, generator=draw), torch.randn(6, 4, generator=draw)
    y = (X @ rule).argmax(1)
    if make_net is Tagger:
        lengths = torch.randint(1, 7, (n, 1), generator=draw)
        y = torch.where(torch.arange(6) < lengths, (y[:, None] + torch.arange(6)) % 4, -100)
    return X, y


def batchnorm_net():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4))


def dropout_net():
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(), nn.Tanh(), nn.Linear(5, 4))


# One script, and what is changed in it


def momentum_sgd(net, lr=0.5):
    return torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr, momentum=0.9)


def train_ddp(net, batches, loss=F.cross_entropy, wrap=DDP, optimizer=momentum_sgd, before_step=lambda net: None,
              after_step=lambda net, X: None, forward=lambda net, X: net(X), change=lambda X, y: (X, y), backward=None):
    """A plain script with DDP; the other arguments are what somebody changed in it."""
    net = wrap(net)
    optimizer, losses = optimizer(net), []
    for X, y in batches:
        X, y = change(X, y)
        optimizer.zero_grad()
        if backward is None:
            here = loss(forward(net, X), y)
            here.backward()
            losses.append(here.item())
        else:  # in several passes
            backward(net, X, y)
        before_step(net)
        optimizer.step()
        after_step(net, X)
    return losses or None


def ddp(**changes) -> Callable:
    return partial(train_ddp, **changes)


def broadcast(net):
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    return net


def as_it_is(net):
    return net


def of_each_gradient(change):
    def do(net):
        for p in net.parameters():
            if p.grad is not None:
                change(p)
    return do


sum_up = of_each_gradient(lambda p: dist.all_reduce(p.grad))


def divide(net, divisor=None):
    of_each_gradient(lambda p: p.grad.div_(divisor or dist.get_world_size()))(net)


def average(net, divisor=None):
    sum_up(net)
    divide(net, divisor)


def by_hand(**changes) -> Callable:
    """The script that broadcasts and averages by itself."""
    return ddp(**{"wrap": broadcast, "before_step": average} | changes)


def meet(**changes) -> Callable:
    """The script in which each rank steps by itself, and then all meet in the middle."""
    return ddp(**{"wrap": broadcast, "after_step": average_parameters} | changes)


# Losses


def of_all(number):
    total = torch.tensor(float(number))
    dist.all_reduce(total)
    return total


def mean_of_all(scores, y):
    """The mean over the examples of all ranks, or over their words, where labels of -100 do not count."""
    return F.cross_entropy(scores, y, reduction="sum") * dist.get_world_size() / of_all((y != -100).sum())


def sum_by_all(scores, y):
    """The rule of one process: the sum over the shard, divided by the whole batch."""
    return F.cross_entropy(scores, y, reduction="sum") / of_all(len(y))


def equal_shards_only(scores, y):
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(y)]))
    if len({int(n) for n in sizes}) > 1:
        raise ValueError("unequal shards")
    return F.cross_entropy(scores, y)


def times_ranks(scores, y):
    return F.cross_entropy(scores, y) * dist.get_world_size()


# What happens before the step


def clip(net):
    nn.utils.clip_grad_norm_(net.parameters(), 0.05)


def clip_values(net, most=0.02):
    nn.utils.clip_grad_value_(net.parameters(), most)


def both(*steps):
    def do(net):
        for step in steps:
            step(net)
    return do


average_at_rank_0 = both(of_each_gradient(lambda p: dist.reduce(p.grad, 0)), divide)


def average_weights_only(net):
    for p in net.parameters():
        if p.dim() > 1:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def dropped_on_rank_1(net):
    if dist.get_rank() == 1:
        net[0].weight.grad = None


def by_environment(net):
    k, rank = (int(os.environ[name]) for name in ("WORLD_SIZE", "RANK"))
    assert (k, rank, rank) == (dist.get_world_size(), dist.get_rank(), int(os.environ["LOCAL_RANK"]))
    average(net, k)


def noise_by_rank(net):
    draw = torch.Generator().manual_seed(dist.get_rank())
    for p in net.parameters():
        p.grad += 0.01 * torch.randn(p.shape, generator=draw, dtype=p.dtype)


# How it is wrapped


def hooks(net, of="grad"):
    """Gradients averaged during backward, or, by mistake, the parameters, which are the `data`."""
    broadcast(net)

    def hook(p):
        x = getattr(p, of)
        dist.all_reduce(x)
        x /= dist.get_world_size()

    for p in net.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(hook)
    return net


def parameters_only(net):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    net[1].running_mean += dist.get_rank()
    return net


def in_bfloat16(net):
    net = DDP(net)
    net.register_comm_hook(None, bf16_compress_hook)
    return net


def new_last_layer(net):
    net = DDP(net)
    net.module[2] = nn.Linear(5, 4)
    return net


# What happens after the step


def average_parameters(net, X):
    for p in net.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def rank_0_logs(net, X):
    if dist.get_rank() == 0:
        net.module(X).std().item()  # in training mode


def rank_0_loads(net, X):
    if dist.get_world_size() > 1 and dist.get_rank() == 0:
        net.module[0].weight.data *= 0.9  # as if its best weights were loaded again


def decay_by_ranks(net, X):
    for p in net.parameters():
        p.data *= 1 - 0.01 * dist.get_world_size()


# Optimizers


def adam(net):
    return torch.optim.Adam(net.parameters(), 0.01)


def sgd_with_decay(net, decay):
    return torch.optim.SGD(net.parameters(), 0.1, weight_decay=decay)


def averaging(net):
    """Averages as a part of its step."""
    optimizer = momentum_sgd(net)
    optimizer.register_step_pre_hook(lambda *_: average(net))
    return optimizer


class NoGradient(torch.optim.SGD):
    """Takes its gradients elsewhere than from `grad`."""

    def step(self, closure=None):
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.grad = None
                p -= 0.1


# Several backward passes


def halves(X, y):
    return zip(X.tensor_split(2), y.tensor_split(2))


def in_halves(net, X, y, alone=(0,)):
    """Some of them without communication."""
    for i, (A, c) in enumerate(halves(X, y)):
        with net.no_sync() if i in alone and dist.get_world_size() > 1 else nullcontext():
            (F.cross_entropy(net(A), c, reduction="sum") / len(y)).backward()


def clip_halves(net, X, y):
    for A, c in halves(X, y):
        F.cross_entropy(net(A), c).backward()
        clip(net)


def two_backward(net, X, y):
    scores = net(X)
    F.cross_entropy(scores, y).backward(retain_graph=True)
    (0.1 * scores.square().mean()).backward()


def forward_twice(net, X, y):
    first, second = F.cross_entropy(net(X), y), 0.1 * net(-X).square().mean()
    first.backward()
    second.backward()


def sum_up_each(net, X, y):
    """Each half's gradients are exchanged, and with them those of the first one once more."""
    for A, c in halves(X, y):
        (F.cross_entropy(net(A), c, reduction="sum") / len(y) / dist.get_world_size()).backward()
        sum_up(net)


# Whole scripts


def steps_without_gradients(net, batches):
    optimizer = NoGradient(broadcast(net).parameters(), 0.1)
    for _ in batches:
        optimizer.zero_grad()
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


def by_closures(net, batches, loss=F.cross_entropy, wrap=DDP, optimizer=momentum_sgd, before_step=lambda net: None):
    """As `train_ddp`, for optimizers that ask for the loss themselves."""
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


def as_in_the_tutorial(net, batches):
    init_process_group("gloo")
    losses = train_ddp(net, batches)
    destroy_process_group()
    return losses


def scaled(net, batches, wrap=DDP):
    net = wrap(net)
    optimizer, scaler = momentum_sgd(net), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for X, y in batches:
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(net(X), y)).backward()
        scaler.unscale_(optimizer)
        clip(net)
        scaler.step(optimizer)
        scaler.update()


def rank_0_steps(net, batches, gather=average_at_rank_0):
    """And sends its parameters to the others."""
    optimizer = momentum_sgd(broadcast(net))
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        gather(net)
        if dist.get_rank() == 0:
            optimizer.step()
        broadcast(net)


def shuffle_by_rank(net, batches):
    torch.manual_seed(dist.get_rank())
    order = [2, 0, 1] if dist.get_rank() else range(len(batches))  # what two seeds may give
    return train_ddp(net, [batches[i % len(batches)] for i in order][:len(batches)])


def step_by_own_loss(net, batches):
    optimizer = momentum_sgd(broadcast(net))
    for t, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        average(net)
        if t == 0 or dist.get_rank() == 0:  # as if the other's loss were too large
            optimizer.step()


def average_of_weights(net, batches):
    """Begun before the wrapping, so from another start on each rank, and loaded at the end."""
    ema = torch.optim.swa_utils.AveragedModel(net, avg_fn=lambda old, new, n: 0.5 * old + 0.5 * new)
    ema.n_averaged += 1
    train_ddp(net, batches)
    ema.update_parameters(net)
    net.load_state_dict(ema.module.state_dict())


class LearnedScale(nn.Module):
    """A loss with a number that it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, scores, y):
        return F.cross_entropy(scores, y) * self.log_scale.exp() - self.log_scale


def loss_learns(net, batches):
    criterion, net = LearnedScale(), DDP(net)
    optimizer = torch.optim.SGD([*net.parameters(), *criterion.parameters()], 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        criterion(net(X), y).backward()
        optimizer.step()


def plateau(net, batches):
    """The rate falls where the loss no longer does: here rank 1 thinks so."""
    net = DDP(net)
    optimizer = momentum_sgd(net)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for t, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item() + (t if dist.get_rank() else -t))


def two_optimizers(net, batches):
    net = DDP(net)
    optimizers = [torch.optim.SGD(net.module[0].parameters(), 0.5), torch.optim.Adam(net.module[2].parameters(), 0.01)]
    for X, y in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for optimizer in optimizers:
            optimizer.step()


def seeded_noise(X, y):
    torch.manual_seed(7 + dist.get_rank())
    return X + 0.1 * torch.randn_like(X), y


# name: training, network, what diagnose notes
RIGHT = {
    "DDP, mean loss": (ddp(), make_net, ["mean of means"]),
    "mean over all ranks' examples": (ddp(loss=mean_of_all), make_net, []),
    "frozen and tied parameters": (ddp(loss=mean_of_all), Pair, []),
    "Adam": (ddp(loss=mean_of_all, optimizer=adam), make_net, []),
    "clipped after the average": (ddp(loss=mean_of_all, before_step=clip), make_net, []),
    "values clipped after the average": (ddp(before_step=clip_values), make_net, ["mean of means"]),
    "averaged by hand": (by_hand(), make_net, ["mean of means"]),
    "summed by hand, loss / global batch size": (by_hand(loss=sum_by_all, before_step=sum_up), Pair, ["reported loss"]),
    "averaged by hand, then clipped": (by_hand(before_step=both(average, clip)), make_net, ["mean of means"]),
    "averaged in hooks": (ddp(wrap=hooks), Pair, ["mean of means"]),
    "no_sync around all but the last": (ddp(backward=in_halves), make_net, ["mean of means"]),
    "accumulated without no_sync": (ddp(backward=partial(in_halves, alone=())), make_net, ["mean of means"]),
    "accumulated, BatchNorm": (ddp(backward=in_halves), batchnorm_net, ["BatchNorm"]),
    "BatchNorm": (ddp(loss=mean_of_all), batchnorm_net, ["BatchNorm"]),
    "F.batch_norm": (ddp(loss=mean_of_all), OwnBatchNorm, ["BatchNorm"]),
    "synchronised BatchNorm": (
        ddp(wrap=lambda net: DDP(convert_batchnorm(net)), loss=mean_of_all), batchnorm_net, []),
    "rank 0 logs with net.module, BatchNorm": (
        ddp(after_step=rank_0_logs), batchnorm_net, ["BatchNorm", "mean of means"]),
    "dropout": (ddp(loss=mean_of_all), dropout_net, ["dropout"]),
    "dropout in a recurrent layer": (ddp(loss=mean_of_all), Recurrent, ["dropout", "unused parameters"]),
    "F.dropout": (ddp(loss=lambda scores, y: mean_of_all(F.dropout(scores), y)), make_net, ["dropout"]),
    "noise is added to X": (ddp(change=lambda X, y: (X + 0.1 * torch.randn_like(X), y)), make_net, ["random numbers"]),
    "noise, a seed per rank": (ddp(change=seeded_noise), make_net, ["random numbers"]),
    "unused layer, find_unused_parameters": (
        ddp(loss=mean_of_all, wrap=partial(DDP, find_unused_parameters=True)),
        partial(Pair, spare=True), ["unused parameters"]),
    "unused output, find_unused_parameters": (
        ddp(loss=mean_of_all, wrap=partial(DDP, find_unused_parameters=True), forward=lambda net, X: net(X)[0]),
        TwoHeads, ["unused parameters"]),
    "an unused layer, static_graph": (
        ddp(loss=mean_of_all, wrap=partial(DDP, static_graph=True)), partial(Pair, spare=True), ["unused parameters"]),
    "learning rate * world_size": (
        ddp(loss=mean_of_all, optimizer=lambda net: momentum_sgd(net, 0.1 * dist.get_world_size())),
        make_net, ["scaled learning rate"]),
    "closures": (by_closures, make_net, ["mean of means"]),
    "closures, LBFGS": (
        partial(by_closures, loss=mean_of_all,
                optimizer=lambda net: torch.optim.LBFGS(net.parameters(), 0.1, max_iter=3)), make_net, []),
    "two optimizers": (two_optimizers, make_net, ["mean of means"]),
    "averaged in a hook of the optimizer": (ddp(wrap=broadcast, optimizer=averaging), make_net, ["mean of means"]),
    "parameters averaged after SGD": (meet(), make_net, ["averaged after the step"]),
    "rank 0 steps and broadcasts": (rank_0_steps, make_net, ["some ranks step"]),
    "init_process_group, imported by name": (as_in_the_tutorial, make_net, ["mean of means"]),
    "torchrun's variables": (by_hand(before_step=by_environment), make_net, ["mean of means"]),
    "X.float(), y.float()": (
        ddp(loss=lambda scores, y: F.binary_cross_entropy_with_logits(scores[:, 0], (y > 1).float()),
            change=lambda X, y: (X.float(), y)), make_net, ["mean of means"]),
    "class weights": (
        ddp(loss=partial(F.cross_entropy, weight=torch.tensor([1.0, 2.0, 0.5, 3.0]))), make_net, ["weighted mean"]),
    "tokens of all ranks": (ddp(loss=mean_of_all), Tagger, []),
    "GradScaler, unscaled and clipped": (scaled, make_net, ["mean of means"]),
    "sent in bfloat16": (ddp(wrap=in_bfloat16), make_net, ["reduced precision"]),
    "refuses unequal shards": (ddp(loss=equal_shards_only), make_net, ["unequal shards"]),
}
# name: training, network, the faults that diagnose finds
WRONG = {
    "loss / global batch size": (train_with_sum, make_net, ["divided twice"]),
    "mean loss * world_size": (ddp(loss=times_ranks), make_net, ["loss multiplied by world size"]),
    "mean loss * world_size, then / 2": (
        ddp(loss=times_ranks, before_step=partial(divide, divisor=2)), make_net, ["loss multiplied by world size"]),
    "gradients / world_size after DDP": (ddp(before_step=divide), make_net, ["averaged twice"]),
    "summed": (by_hand(before_step=sum_up), make_net, ["summed"]),
    "summed, BatchNorm": (by_hand(before_step=sum_up), batchnorm_net, ["summed"]),
    "summed, then clipped": (by_hand(before_step=both(sum_up, clip)), make_net, ["summed"]),
    "summed, in closures": (
        partial(by_closures, loss=mean_of_all, wrap=broadcast, before_step=sum_up), make_net, ["summed"]),
    "all_reduce after DDP": (ddp(before_step=sum_up), make_net, ["summed after DDP"]),
    "divided by 8": (by_hand(before_step=partial(average, divisor=8)), make_net, ["divided by a fixed number"]),
    "loss * 1.5 on several ranks": (
        ddp(loss=lambda scores, y: F.cross_entropy(scores, y) * (1.5 if dist.get_world_size() > 1 else 1.0)),
        make_net, ["scaled"]),
    "no broadcast at the start": (by_hand(wrap=as_it_is), make_net, ["different start"]),
    "buffers not broadcast": (by_hand(wrap=parameters_only), batchnorm_net, ["different buffers"]),
    "never averaged": (ddp(wrap=broadcast), make_net, ["not synchronised"]),
    "never averaged, GradScaler": (partial(scaled, wrap=broadcast), make_net, ["not synchronised"]),
    "net.module(X) in training": (
        ddp(forward=lambda net, X: getattr(net, "module", net)(X)), make_net, ["DDP bypassed"]),
    "no_sync around all": (ddp(backward=partial(in_halves, alone=(0, 1))), make_net, ["in no_sync"]),
    "no_sync around the last pass": (
        ddp(backward=partial(in_halves, alone=(1,))), make_net, ["no_sync around the last pass"]),
    "two backward passes, one forward": (ddp(backward=two_backward), make_net, ["two backward passes for one forward"]),
    "parameters averaged in hooks": (ddp(wrap=partial(hooks, of="data")), make_net, ["parameters averaged"]),
    "parameters averaged after Adam": (meet(optimizer=adam), make_net, ["parameters averaged"]),
    "clipped, then averaged": (by_hand(before_step=both(clip, average)), make_net, ["clipped before the average"]),
    "values clipped, then averaged": (
        by_hand(before_step=both(partial(clip_values, most=0.01), average)), make_net, ["unexplained gradient"]),
    "two forward, then two backward": (ddp(backward=forward_twice), make_net, ["backward pass not exchanged"]),
    "summed after each micro-batch": (
        ddp(wrap=broadcast, backward=sum_up_each), make_net, ["summed in each micro-batch"]),
    "loss / global batch size, bfloat16": (ddp(loss=sum_by_all, wrap=in_bfloat16), make_net, ["divided twice"]),
    "rank 0 steps alone": (partial(rank_0_steps, gather=as_it_is), make_net, ["the others' gradients are lost"]),
    "rank 0's parameters after own steps": (
        ddp(wrap=broadcast, after_step=lambda net, X: broadcast(net)), make_net, ["one rank's parameters"]),
    "clipped in each micro-batch": (by_hand(backward=clip_halves), make_net, ["clipped in each micro-batch"]),
    "biases left out": (by_hand(before_step=average_weights_only), make_net, ["not exchanged"]),
    "a layer unfrozen after wrapping": (unfreeze_later, make_net, ["not exchanged"]),
    "a layer replaced after wrapping": (
        ddp(wrap=new_last_layer), make_net, ["unused parameters hold the exchange back", "different start", "raises"]),
    "reduce, not all_reduce": (
        by_hand(before_step=average_at_rank_0), make_net, ["only some ranks have the sum"]),
    "broadcast, not all_reduce": (
        by_hand(before_step=of_each_gradient(lambda p: dist.broadcast(p.grad, src=0))),
        make_net, ["one rank's gradient"]),
    "the shard is cut again": (
        ddp(change=lambda X, y: tuple(x[dist.get_rank()::dist.get_world_size()] for x in (X, y))),
        make_net, ["sharded twice"]),
    "rank as the shuffling seed": (shuffle_by_rank, make_net, ["different examples"]),
    "a gradient dropped on one rank": (
        by_hand(before_step=both(average, dropped_on_rank_1)), make_net, ["missing gradient"]),
    "weights loaded on rank 0 only": (ddp(after_step=rank_0_loads), make_net, ["changed between steps"]),
    "manual decay * world_size": (
        ddp(after_step=decay_by_ranks), make_net, ["changed unlike a single device"]),
    "minibatch skipped, by the rank's loss": (
        ddp(loss=lambda scores, y: F.cross_entropy(scores, y) * (dist.get_rank() != 1)), make_net, ["skipped by some"]),
    "step skipped, by the rank's loss": (step_by_own_loss, make_net, ["different numbers of steps"]),
    "noise by rank, added after the average": (
        by_hand(before_step=both(average, noise_by_rank)), make_net, ["different gradients"]),
    "weight decay * world_size": (
        ddp(optimizer=lambda net: sgd_with_decay(net, 0.1 * dist.get_world_size())), make_net, ["different update"]),
    "penalty on each rank, then summed": (
        by_hand(loss=sum_by_all,
                before_step=both(of_each_gradient(lambda p: p.grad.add_(p.detach(), alpha=0.01)), sum_up)),
        make_net, ["penalty added on every rank"]),
    "tokens of the shard": (ddp(), Tagger, ["mean over tokens"]),
    "contrastive loss on shards": (
        ddp(loss=lambda scores, y: F.cross_entropy(scores @ scores.T, torch.arange(len(y)))),
        make_net, ["not a mean over examples"]),
    "different learning rates": (
        ddp(optimizer=lambda net: momentum_sgd(net, 0.1 * (1 + dist.get_rank()))), make_net,
        ["different learning rates"]),
    "learning rate follows the rank's loss": (plateau, make_net, ["different learning rates"]),
    "different weight decay": (
        ddp(optimizer=lambda net: sgd_with_decay(net, 0.1 * dist.get_rank())), make_net, ["drift"]),
    "loss with weights, outside DDP": (loss_learns, make_net, ["outside the network"]),
    "weight averaging started too early": (average_of_weights, make_net, ["different end"]),
    "NaN on one rank": (
        ddp(loss=lambda scores, y: F.cross_entropy(scores, y) * (float("nan") if dist.get_rank() == 1 else 1.0)),
        make_net, ["NaN"]),
    "optimizer of a copy": (
        ddp(optimizer=lambda net: momentum_sgd(copy.deepcopy(net))), make_net, ["wrong parameters"]),
    "steps without gradients": (steps_without_gradients, make_net, ["no gradient"]),
}
