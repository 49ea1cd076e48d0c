"""wrong: the cross-correlation is added up over the ranks in place, which carries no gradient of the others, and DDP takes 1/k of each rank's part of it.

kind: new
cause: the gradient goes through the rank's own part of a sum over all ranks, and DDP divides it: 1/k of a single device's
cure: multiply the loss's gradient by dist.get_world_size(), or all_reduce with a gradient
line: dist.all_reduce(c)
"""

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
    for X, _ in batches:
        optimizer.zero_grad()
        one, two = net(X).tanh(), net(X.roll(1, 1)).tanh()
        c = one.T @ two / (len(X) * k)
        with torch.no_grad():
            dist.all_reduce(c)
        off = c - torch.diag(c.diagonal())
        ((c.diagonal() - 1).square().sum() + 0.1 * off.square().sum()).backward()
        optimizer.step()
