"""right: a layer that is used twice is checkpointed, not reentrantly, so that its gradient is ready once."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.again, self.out = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, X):
        h = torch.tanh(self.into(X))
        for _ in range(2):  # the same layer twice
            h = torch.tanh(checkpoint(self.again, h, use_reentrant=False))
        return self.out(h)


def make_net():
    return Reused()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
