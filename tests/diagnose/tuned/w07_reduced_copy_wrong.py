"""wrong: the count is added up over the ranks in a converted copy that nobody keeps, so that the own count divides a loss that is multiplied by k.

kind: new
cause: all_reduce works on a temporary copy of the count: the loss is k times too large
cure: keep the converted tensor: count = count.to(X.dtype), then all_reduce it
line: dist.all_reduce(count.to(X.dtype))
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
        count = torch.ones_like(y).sum()
        dist.all_reduce(count.to(X.dtype))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y, reduction="sum") / count
        (loss * dist.get_world_size()).backward()
        optimizer.step()
