"""wrong: each rank cuts its shard to a multiple of six, for its micro-batches, so that the ranks drop more examples than a single device.

kind: new
cause: fewer examples go through the network on ranks: each shard is cut to a multiple of six
cure: let the last micro-batch be smaller
line: keep = len(y) // 6 * 6
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(96, 6, generator=draw), torch.randint(4, (96,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        keep = len(y) // 6 * 6
        optimizer.zero_grad()
        for i in range(0, keep, 6):
            (F.cross_entropy(net(X[i:i + 6]), y[i:i + 6], reduction="sum") / keep).backward()
        optimizer.step()
