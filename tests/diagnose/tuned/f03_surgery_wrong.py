"""wrong: gradient surgery before the exchange: each rank projects its own gradients, and the average of projections is not the projection of averages.

kind: F3
cause: the ranks change their own gradients (a projection) before they are averaged
cure: average both tasks' gradients first, then project
line: flat = two + one - (one @ two) / (two @ two) * two  # of this rank
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

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
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        grads = []
        for task in range(2):
            optimizer.zero_grad()
            losses(net, X, y)[task].backward()
            grads.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        one, two = grads
        flat = two + one - (one @ two) / (two @ two) * two  # of this rank
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, g in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
            p.grad = g.view_as(p).clone()
        optimizer.step()
