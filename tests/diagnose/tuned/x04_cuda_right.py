"""right: a script for GPUs, whose calls are run on the CPU."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:
        rank = dist.get_rank()
        X, y = X.cuda(), y.to(f"cuda:{rank}")
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
