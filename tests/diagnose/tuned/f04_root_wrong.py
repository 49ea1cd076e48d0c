"""wrong: the loss is multiplied by the root of the number of ranks, a rule that is meant for the learning rate, and the weight decay no longer fits.

kind: F4
cause: a factor on the loss that depends on the number of ranks: its root
cure: leave the loss alone; if at all, scale the learning rate
line: (F.cross_entropy(net(X), y) * dist.get_world_size() ** 0.5).backward()
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
    optimizer = torch.optim.SGD(net.parameters(), 0.1, weight_decay=0.05)
    for X, y in batches:
        optimizer.zero_grad()
        (F.cross_entropy(net(X), y) * dist.get_world_size() ** 0.5).backward()
        optimizer.step()
