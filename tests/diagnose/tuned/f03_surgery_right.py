"""right: gradient surgery: each task has a forward and a backward pass of its own, averaged by DDP, and what one gradient has along the other is taken out of the averages, alike on all ranks."""

import torch
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
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        grads = []
        for task in range(2):
            optimizer.zero_grad()
            losses(net, X, y)[task].backward()
            grads.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        one, two = grads
        flat = two + one - (one @ two) / (two @ two) * two
        for p, g in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
            p.grad = g.view_as(p).clone()
        optimizer.step()
