"""wrong: each rank's gradient is brought to length one, and then they are averaged: shorter than one, and another direction.

kind: new
cause: each rank normalises its own gradient before the average
cure: average first, then normalise
line: p.grad /= length * dist.get_world_size()
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        length = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
        for p in net.parameters():
            p.grad /= length * dist.get_world_size()
            dist.all_reduce(p.grad)
        optimizer.step()
