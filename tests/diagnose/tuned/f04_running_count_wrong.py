"""wrong: the running count of examples is added up over the ranks after each micro-batch, so that what was counted before is counted k times again.

kind: F4
cause: a running total that is all-reduced again and again: the divisor is too large
cure: count the shard alone, and all_reduce once after the inner loop
line: dist.all_reduce(count)
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
        count = torch.zeros(())
        for A, c in zip(X.chunk(2), y.chunk(2)):
            F.cross_entropy(net(A), c, reduction="sum").backward()
            count += len(c)
            dist.all_reduce(count)
        for p in net.parameters():
            p.grad *= dist.get_world_size() / count
        optimizer.step()
