"""right: the loss scale doubles after each step, alike on all ranks, and is taken off before the step."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1)
    for X, y in batches:
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(net(X), y)).backward()
        scaler.step(optimizer)
        scaler.update()
