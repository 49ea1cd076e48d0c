"""meant: SAM as its authors run it: each rank goes uphill along the gradient of its own shard, and only the second gradient is averaged.

differs: each rank's second gradient is taken at a place of its own
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
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for X, y in batches:
        optimizer.zero_grad()
        with net.no_sync():
            F.cross_entropy(net(X), y).backward()
        length = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
        ways = [0.05 * p.grad / length for p in net.parameters()]
        old = [p.detach().clone() for p in net.parameters()]
        with torch.no_grad():
            torch._foreach_add_(list(net.parameters()), ways)
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        with torch.no_grad():
            torch._foreach_copy_(list(net.parameters()), old)
        optimizer.step()
