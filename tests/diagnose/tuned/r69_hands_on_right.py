"""right: a DDP of one's own that hands on attributes of the inner network, of which a penalty on weights is asked, the same on each rank."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Decays(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, X):
        return self.body(X)

    def penalty(self):
        return 0.01 * sum(p.square().sum() for p in self.parameters())


def make_net():
    return Decays()


class HandsOn(DDP):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def train(net, batches):
    net = HandsOn(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        (F.cross_entropy(net(X), y) + net.penalty()).backward()
        optimizer.step()
