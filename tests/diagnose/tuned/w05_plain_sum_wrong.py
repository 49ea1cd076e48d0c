"""wrong: the loss is a sum over the shard, of which DDP takes the mean: 1/k of a single device's sum.

kind: new
cause: the loss is a sum over the shard, and DDP divides by the number of ranks
cure: take the mean, or multiply by dist.get_world_size()
line: loss = F.mse_loss(net(X)[:, 0], y, reduction="sum")
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randn(72, generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.002)
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(net(X)[:, 0], y, reduction="sum")
        loss.backward()
        optimizer.step()
