"""meant: the linear rule: the rate is multiplied by the number of ranks and warmed up from that of one, since the whole batch is k times as large where each rank keeps its batch.

differs: the rate is up to k times a single device's on the same minibatch
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
    k = dist.get_world_size()
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    for t, (X, y) in enumerate(batches):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 + (k - 1) * min(1.0, t / 2))
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
