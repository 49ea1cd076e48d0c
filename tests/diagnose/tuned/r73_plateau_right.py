"""right: the rate follows the loss that is averaged over the ranks, so that it falls on all ranks when a single device's does."""

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
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.3)
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        schedule.step(mean.item())
