"""wrong: the loss that is averaged over the ranks for the log is the one that backward is called on: its gradient is the own loss's divided by k, and DDP divides again.

kind: new
cause: divided twice: backward on the reduced loss, which was divided by the number of ranks
cure: call backward on the own loss, and reduce for the log only
line: loss = reduce_mean(F.cross_entropy(net(X), y))
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


def reduce_mean(loss):
    mean = loss.clone()
    with torch.no_grad():
        dist.all_reduce(mean)
    return mean / dist.get_world_size()


def train(net, batches):
    net = DDP(net)
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.1), []
    for X, y in batches:
        optimizer.zero_grad()
        loss = reduce_mean(F.cross_entropy(net(X), y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
