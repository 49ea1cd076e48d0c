"""right: a penalty on weights is asked of the inner module, which has the method, and the forward pass goes through the wrapper; the penalty is the same on each rank."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, X):
        return self.out(torch.tanh(self.into(X)))

    def penalty(self):
        return 0.01 * self.into.weight.abs().sum()


def make_net():
    return Sparse()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        (F.cross_entropy(net(X), y) + net.module.penalty()).backward()
        optimizer.step()
