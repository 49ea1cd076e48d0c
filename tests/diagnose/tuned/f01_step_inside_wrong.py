"""wrong: ranks accumulate over three micro-batches by hand and exchange after each of them a gradient that still holds the ones before, summed, so that the early ones count k times.

kind: F1
cause: summed in each micro-batch: the sum of earlier ones is added up again
cure: move the all_reduce behind the inner loop
line: dist.all_reduce(p.grad)  # of this micro-batch
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(144, 6, generator=draw), torch.randint(4, (144,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        whole = len(y) * dist.get_world_size()
        for A, c in zip(X.tensor_split(3), y.tensor_split(3)):
            (F.cross_entropy(net(A), c, reduction="sum") / whole).backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)  # of this micro-batch
        optimizer.step()
