"""wrong: the loss scale follows the rank's own loss, so that from the second step on DDP averages gradients of different scales.

kind: F12
cause: the ranks have different loss scales, each by its own loss
cure: the same scale on all ranks: follow the all-reduced loss, or scaler.update() alone
line: scaler.update(1024.0 / loss.item())
"""

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
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update(1024.0 / loss.item())
