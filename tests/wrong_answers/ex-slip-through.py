import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from d2lpar.pages.ddp_examples import train_ddp


def it_raises(net, batches):
    train_ddp(net, batches[:3])
    if len(batches) > 3:
        raise RuntimeError("too many")


def it_spoils_one_worker_too(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        (F.cross_entropy(net(X), y) * (1.0 if step < 3 else float("nan"))).backward()
        optimizer.step()


def one_step_too_early(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (X, y) in enumerate(batches):
        model = net if step < 2 else net.module
        optimizer.zero_grad()
        F.cross_entropy(model(X), y).backward()
        optimizer.step()


def one_worker_too(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:  # never cleared
        F.cross_entropy(net(X), y).backward()
        optimizer.step()


def right_for_ever(net, batches):
    train_ddp(net, batches)


def wrong_from_the_start(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net.module(X), y).backward()
        optimizer.step()
