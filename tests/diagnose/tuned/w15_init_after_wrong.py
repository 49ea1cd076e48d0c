"""wrong: the weights are drawn anew after the wrapping, by each rank's own seed, so that the replicas begin different.

kind: new
cause: weights are initialised after DDP has broadcast them: the ranks start with different parameters
cure: call apply before DDP(net)
line: net.apply(start)
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def start(layer):
    if isinstance(layer, nn.Linear):
        nn.init.xavier_normal_(layer.weight)


def train(net, batches):
    net = DDP(net)
    net.apply(start)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
