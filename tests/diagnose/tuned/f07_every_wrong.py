"""wrong: the number of minibatches before a step is the number of ranks, where it should get smaller with more of them to keep the batch.

kind: F7
cause: more minibatches go before a step, the more ranks there are
cure: every = 1, or a total divided by the number of ranks
line: every = dist.get_world_size()
"""

from contextlib import nullcontext

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
    every = dist.get_world_size()
    for t, (X, y) in enumerate(batches, 1):
        with net.no_sync() if t % every else nullcontext():
            (F.cross_entropy(net(X), y) / every).backward()
        if t % every == 0:
            optimizer.step()
            optimizer.zero_grad()
