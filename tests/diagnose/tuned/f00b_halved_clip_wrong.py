"""wrong: the average by DDP is divided by the number of ranks again before a clipping that bites on a single device and, most often, on the ranks too.

kind: F0b
cause: averaged twice: divided by the number of ranks after DDP
cure: leave out the division, DDP has divided already
line: p.grad /= dist.get_world_size()
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(8)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.2, momentum=0.9)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for p in net.parameters():
            p.grad /= dist.get_world_size()
        nn.utils.clip_grad_norm_(net.parameters(), 0.03)
        optimizer.step()
