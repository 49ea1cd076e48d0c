"""right: each parameter's averaged gradient is clipped to a share of the parameter's own norm, alike on all ranks, as parameters and averages are alike."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def adaptive_clip(net, most=0.01):
    for p in net.parameters():
        size, length = p.detach().norm().clamp(min=1e-3), p.grad.norm()
        if length > most * size:
            p.grad *= most * size / length


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.5, momentum=0.9, nesterov=True)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        adaptive_clip(net)
        optimizer.step()
