"""wrong: rank 0 evaluates and does not return to training mode, so that its BatchNorm uses running statistics from then on, and the others' does not.

kind: new
cause: rank 0 stays in evaluation mode after its evaluation
cure: net.module.train() after the evaluation
line: missing: net.module.train() after rank 0 has evaluated
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        if dist.get_rank() == 0:
            net.module.eval()
            with torch.no_grad():
                net.module(X).argmax(1)
