"""wrong: class weights are worked out from the labels of the shard, so that the same class weighs differently on each rank.

kind: F13
cause: class weights from the counts of the shard's own labels
cure: all_reduce the counts (no gradient is needed), and divide by the sum of weights of all ranks
line: counts = torch.bincount(y, minlength=4).to(X.dtype)
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
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        counts = torch.bincount(y, minlength=4).to(X.dtype)
        weight = len(y) / (4 * counts.clamp(min=1))
        optimizer.zero_grad()
        F.cross_entropy(net(X), y, weight=weight).backward()
        optimizer.step()
