"""wrong: each rank's mean is weighted by its share of all examples, as for a sum over ranks, and DDP takes a mean over them: divided twice.

kind: new
cause: divided twice: the loss is weighted by the rank's share, and DDP divides by the number of ranks
cure: multiply by dist.get_world_size() too
line: (F.cross_entropy(net(X), y) * len(y) / total).backward()
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
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for X, y in batches:
        total = torch.tensor(float(len(y)))
        dist.all_reduce(total)
        optimizer.zero_grad()
        (F.cross_entropy(net(X), y) * len(y) / total).backward()
        optimizer.step()
