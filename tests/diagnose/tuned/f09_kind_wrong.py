"""wrong: for the accuracy rank 0 calls reduce and the others all_reduce: different collectives at the same place.

kind: F9
cause: the ranks call different collectives: reduce on rank 0, all_reduce on the others
cure: the same call on all ranks: dist.reduce(hits, dst=0)
line: dist.all_reduce(hits)
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
        scores = net(X)
        F.cross_entropy(scores, y).backward()
        optimizer.step()
        hits = (scores.argmax(1) == y).sum()
        if dist.get_rank() == 0:
            dist.reduce(hits, dst=0)
        else:
            dist.all_reduce(hits)
