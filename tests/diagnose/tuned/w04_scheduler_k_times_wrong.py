"""wrong: the scheduler makes as many steps as there are ranks for each step of the optimizer, so that the rate falls k times as fast.

kind: new
cause: the scheduler steps once for each rank: from the second step on the rate depends on the number of ranks
cure: one scheduler.step() for each optimizer.step()
line: for _ in range(dist.get_world_size()):
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        for _ in range(dist.get_world_size()):
            scheduler.step()
