"""wrong: labels are numbered by those that are in the shard, so that one class has different numbers on the ranks.

kind: new
cause: the label encoding is made from the shard's own labels
cure: number the labels once, from all data
line: _, code = y.unique(return_inverse=True)
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.arange(72) % 6  # on two ranks 0, 2, 4 and 1, 3, 5


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        _, code = y.unique(return_inverse=True)
        optimizer.zero_grad()
        F.cross_entropy(net(X), code).backward()
        optimizer.step()
