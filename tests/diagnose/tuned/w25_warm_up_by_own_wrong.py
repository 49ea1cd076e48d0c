"""wrong: the warm-up counts the rank's own examples, so that with more ranks it takes more steps, and the rate is too small.

kind: new
cause: the warm-up counts the examples of the shard, not of all ranks: the rate depends on the number of ranks
cure: count len(y) * dist.get_world_size(), or steps
line: seen += len(y)
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net, seen = DDP(net), 0
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        seen += len(y)
        for group in optimizer.param_groups:
            group["lr"] = 0.2 * min(1.0, seen / 100)
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
