"""right: a penalty on the weights is the same on each rank, so that DDP's average leaves it as it is."""

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
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for X, y in batches:
        optimizer.zero_grad()
        penalty = sum(p.abs().sum() for p in net.parameters() if p.dim() > 1)
        (F.cross_entropy(net(X), y) + 0.01 * penalty).backward()
        optimizer.step()
