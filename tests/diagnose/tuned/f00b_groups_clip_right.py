"""right: each of two groups of parameters is clipped to its own bound after DDP's average, and both bounds bite in every step: all ranks and a single device clip the same gradient."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(1)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    layers = [list(net.module[0].parameters()), list(net.module[2].parameters())]
    optimizer = torch.optim.SGD([{"params": layers[0], "lr": 0.5}, {"params": layers[1], "lr": 0.2}], momentum=0.9)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for params, most in zip(layers, (0.001, 0.02)):
            nn.utils.clip_grad_norm_(params, most)
        optimizer.step()
