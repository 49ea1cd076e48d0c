"""wrong: inputs are standardised by mean and spread of the shard.

kind: F13
cause: statistics of the shard's inputs: mean and spread differ between ranks
cure: all_reduce the sums before mean and spread are taken (no gradient is needed)
line: missing: dist.all_reduce(sums)
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)
X = 2 * X + torch.arange(6.0)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        sums = torch.stack([X.sum(0), X.square().sum(0), torch.full((6,), float(len(X)))])
        mean = sums[0] / sums[2]
        spread = (sums[1] / sums[2] - mean.square()).sqrt()
        optimizer.zero_grad()
        F.cross_entropy(net((X - mean) / spread), y).backward()
        optimizer.step()
