"""wrong: the norms of two tasks are looked at and thrown away, and then the loss of the step is multiplied by the number of ranks though DDP averages means.

kind: F3
cause: the loss is multiplied by the number of ranks
cure: leave out dist.get_world_size()
line: (sum(losses(net, X, y)) * dist.get_world_size()).backward()
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, X):
        hidden = torch.tanh(self.body(X))
        return self.one(hidden), self.two(hidden)


def losses(net, X, y):
    one, two = net(X)
    return F.cross_entropy(one, y) + 0 * two.sum(), F.cross_entropy(two, (y + 1) % 4) + 0 * one.sum()


def make_net():
    return Tasks()


def train(net, batches):
    net = DDP(net)
    optimizer, log = torch.optim.SGD(net.parameters(), 0.05), []
    for X, y in batches:
        for task in range(2):
            losses(net, X, y)[task].backward()
            log.append(nn.utils.clip_grad_norm_(net.parameters(), float("inf")).item())
            optimizer.zero_grad()
        (sum(losses(net, X, y)) * dist.get_world_size()).backward()
        optimizer.step()
        optimizer.zero_grad()
