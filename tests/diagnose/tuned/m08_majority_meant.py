"""meant: signs only: each rank sends the signs of its gradient, and all step by the majority's.

differs: the majority of the ranks' signs is not the sign of the mean
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
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for p in net.parameters():
            votes = p.grad.sign()
            dist.all_reduce(votes)
            p.grad.copy_(votes.sign())
        optimizer.step()
