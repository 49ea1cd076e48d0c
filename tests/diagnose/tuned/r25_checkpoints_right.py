"""right: a deep network computed again in segments in the backward pass, not reentrantly, under plain DDP."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint_sequential

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)]
        self.into, self.body, self.out = nn.Linear(6, 8), nn.Sequential(*layers), nn.Linear(8, 4)

    def forward(self, X):
        return self.out(checkpoint_sequential(self.body, 2, self.into(X), use_reentrant=False))


def make_net():
    return Deep()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.Adagrad(net.parameters(), 0.05)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
