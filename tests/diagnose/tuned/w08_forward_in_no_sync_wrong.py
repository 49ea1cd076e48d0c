"""wrong: all forward passes are in no_sync and the backward passes are not: it is the forward pass that tells DDP whether to send, so nothing is sent.

kind: new
cause: the forward passes are all in no_sync: nothing is exchanged
cure: leave the last forward pass out of no_sync, and go backward right after each
line: with net.no_sync():
"""

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
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        with net.no_sync():
            losses = [F.cross_entropy(net(A), c) / 2 for A, c in zip(X.chunk(2), y.chunk(2))]
        sum(losses).backward()
        optimizer.step()
