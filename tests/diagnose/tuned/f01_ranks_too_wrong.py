"""wrong: each of three micro-batches' means is divided by their number and by the number of ranks, and DDP divides by the number of ranks again.

kind: F1
cause: divided twice: by world_size in the loss and by DDP
cure: divide by len(parts) only
line: loss = F.cross_entropy(net(A), c) / (len(parts) * dist.get_world_size())
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
    for X, y in batches:
        optimizer.zero_grad()
        parts = list(zip(X.tensor_split(3), y.tensor_split(3)))
        for i, (A, c) in enumerate(parts):
            with net.no_sync() if i < len(parts) - 1 else nullcontext():
                loss = F.cross_entropy(net(A), c) / (len(parts) * dist.get_world_size())
                loss.backward()
        optimizer.step()
