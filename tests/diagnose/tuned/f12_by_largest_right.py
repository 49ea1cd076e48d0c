"""right: the loss scale follows the largest loss of all ranks, so that all have the same; that a single device's is another does not matter, as it is taken off."""

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
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        top = loss.detach().clone()
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        scaler.update(2.0 ** (10 - int(top)))
