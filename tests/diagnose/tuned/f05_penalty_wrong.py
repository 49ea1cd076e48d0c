"""wrong: a penalty on the activations is multiplied by the number of ranks, since DDP divides, though it is the same on each rank and DDP's average leaves it as it is.

kind: F5
cause: one term of the loss, the penalty, is multiplied by the number of ranks
cure: leave out dist.get_world_size(): DDP averages a mean to a mean
line: penalty = 0.05 * dist.get_world_size() * hidden.abs().mean()
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Shown(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, X):
        hidden = torch.tanh(self.into(X))
        return self.out(hidden), hidden


def make_net():
    return Shown()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for X, y in batches:
        optimizer.zero_grad()
        scores, hidden = net(X)
        penalty = 0.05 * dist.get_world_size() * hidden.abs().mean()
        (F.cross_entropy(scores, y) + penalty).backward()
        optimizer.step()
