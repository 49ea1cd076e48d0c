"""wrong: the center of the targets follows the shard's outputs, and DDP gives all ranks that of rank 0: from the second step on the targets are not a single device's.

kind: F13
cause: a buffer (center) follows the shard of one rank; its running mean is not of all ranks
cure: all_reduce the mean, divide by the number of ranks, then update the buffer
line: net.module.center.mul_(0.5).add_(mean, alpha=0.5)
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.register_buffer("center", torch.zeros(4))

    def forward(self, X):
        return self.body(X)


def make_net():
    return Centered()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, _ in batches:
        optimizer.zero_grad()
        seen = net(X).detach()
        goal = ((seen - net.module.center) / 0.2).softmax(1)
        F.cross_entropy(net(X.roll(1, 1)), goal).backward()
        optimizer.step()
        mean = seen.mean(0)
        net.module.center.mul_(0.5).add_(mean, alpha=0.5)
