"""wrong: the number of micro-batches is added up over the ranks, so that each gradient is k times too small after DDP's average.

kind: F1
cause: divided twice: by the micro-batches of all ranks and by DDP
cure: divide by the rank's own number of micro-batches: leave out the all_reduce
line: dist.all_reduce(number)  # of all ranks
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
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for X, y in batches:
        parts = list(zip(X.split(4), y.split(4)))
        number = torch.tensor(float(len(parts)))
        dist.all_reduce(number)  # of all ranks
        optimizer.zero_grad()
        for A, c in parts:
            (F.cross_entropy(net(A), c) / number).backward()
        optimizer.step()
