"""right: five micro-batches of a shard that five does not divide: each adds its sum divided by the shard's size, so that all together is the mean over the shard."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for X, y in batches:
        optimizer.zero_grad()
        parts = list(zip(X.tensor_split(5), y.tensor_split(5)))
        for i, (A, c) in enumerate(parts):
            with net.no_sync() if i < len(parts) - 1 else nullcontext():
                (F.cross_entropy(net(A), c, reduction="sum") / len(y)).backward()
        optimizer.step()
