"""wrong: the gradients are set to zero on rank 0 only, as the line slipped under its log, and the others' old ones go into the next average.

kind: new
cause: zero_grad is called on rank 0 only: old gradients of the other ranks are averaged again
cure: call optimizer.zero_grad() on all ranks
line: optimizer.zero_grad()
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
    optimizer, log = torch.optim.SGD(net.parameters(), 0.1), []
    for X, y in batches:
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            log.append(loss.item())
            optimizer.zero_grad()
