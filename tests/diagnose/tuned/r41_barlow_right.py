"""right: Barlow Twins: the cross-correlation is added up over the ranks, its gradient through the own part times the number of ranks, which DDP divides by."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net, k = DDP(net), dist.get_world_size()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for X, y in batches:
        count = torch.tensor(float(len(y)))
        dist.all_reduce(count)
        optimizer.zero_grad()
        one, two = net(X).tanh(), net(X.roll(1, 1)).tanh()
        own = one.T @ two / count
        whole = own.detach().clone()
        dist.all_reduce(whole)
        c = k * own + (whole - k * own).detach()
        off = c - torch.diag(c.diagonal())
        ((c.diagonal() - 1).square().sum() + 0.1 * off.square().sum()).backward()
        optimizer.step()
