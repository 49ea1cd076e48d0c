"""right: rank 0 and the others go through different branches, which call the same collectives in the same order."""

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
    optimizer, rate = torch.optim.SGD(net.parameters(), 0.1), torch.empty(())
    for t, (X, y) in enumerate(batches):
        if dist.get_rank() == 0:
            rate.fill_(0.1 / (1 + t))
            dist.broadcast(rate, src=0)
        else:
            dist.broadcast(rate, src=0)
        optimizer.param_groups[0]["lr"] = rate.item()
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
