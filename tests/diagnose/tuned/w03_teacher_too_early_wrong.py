"""wrong: the mean teacher is copied before the wrapping, from a network that is another on each rank, and gives each rank other targets.

kind: new
cause: the teacher is copied before DDP has made the networks alike, so it differs between ranks
cure: copy it after DDP(net)
line: teacher = copy.deepcopy(net).requires_grad_(False)
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    teacher = copy.deepcopy(net).requires_grad_(False)
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.2)
    for X, y in batches:
        with torch.no_grad():
            goal = teacher(X.roll(1, 1)).softmax(1)
        optimizer.zero_grad()
        scores = net(X)
        (F.cross_entropy(scores, y) + F.mse_loss(scores.softmax(1), goal)).backward()
        optimizer.step()
        for p, q in zip(teacher.parameters(), net.module.parameters()):
            p.lerp_(q.detach(), 0.2)
