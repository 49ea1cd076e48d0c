"""wrong: all ranks leave a minibatch out together, but by the worst shard's loss, which is k times as large as that of the whole minibatch, so that a single device makes the step.

kind: F8
cause: all ranks skip together, by what one shard shows (the largest loss of a shard); a single device makes that step
cure: decide by the mean of all ranks: all_reduce with AVG
line: dist.all_reduce(worst, op=dist.ReduceOp.MAX)
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randn(72, generator=draw)
y[25] = 100.0  # in the second minibatch, on rank 1 of two or of three


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.001)
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(net(X)[:, 0], y)
        worst = loss.detach().clone()
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        if worst > 600:
            continue  # all of them, together
        loss.backward()
        optimizer.step()
