"""wrong: a term of the sum over all ranks has the right value, but its gradient comes from the own part alone and DDP divides it: the term pulls 1/k as much as it should.

kind: F5
cause: one term of the loss is 1/k too small: its gradient goes through the rank's own part of a sum, and DDP divides
cure: multiply the part that carries the gradient by dist.get_world_size()
line: total = total + (of_all - total).detach()
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
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        scores = net(X)
        total, count = scores.sum(0), torch.tensor(float(len(y)))
        of_all = total.detach().clone()
        dist.all_reduce(of_all)
        dist.all_reduce(count)
        total = total + (of_all - total).detach()
        mean = total / count  # the mean of all ranks, its gradient through this one's scores
        (F.cross_entropy(scores, y) + mean.square().sum()).backward()
        optimizer.step()
