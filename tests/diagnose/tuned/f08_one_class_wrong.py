"""wrong: all ranks leave a minibatch out if the shard of one of them has one class only, which the whole minibatch has not.

kind: F8
cause: all ranks skip together, by what a shard shows (labels of one class); a single device makes that step
cure: ask the labels of all ranks, or do not skip: DDP averages the mean loss anyway
line: dist.all_reduce(mixed, op=dist.ReduceOp.MIN)
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)
place = torch.arange(24)
y[24:48][(place % 2 == 1) | (place % 3 == 1)] = 0  # one class only on one rank of two, or of three


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        mixed = torch.tensor(float(y.unique().numel() > 1))
        dist.all_reduce(mixed, op=dist.ReduceOp.MIN)
        if not mixed:
            continue
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
