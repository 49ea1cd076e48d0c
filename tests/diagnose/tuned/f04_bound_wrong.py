"""wrong: the bound of the clipping grows with the number of ranks, so that a single device clips harder than they do.

kind: F4
cause: the clipping bound depends on the number of ranks
cure: the same bound for any number of ranks: 0.1
line: nn.utils.clip_grad_norm_(net.parameters(), 0.1 * dist.get_world_size() ** 0.5)
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
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1 * dist.get_world_size() ** 0.5)
        optimizer.step()
