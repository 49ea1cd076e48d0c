"""wrong: a Dice loss, which is a ratio of sums, of the shard's sums alone: a mean of ratios is not the ratio.

kind: F13
cause: a ratio of sums over the shard: the loss is not a mean over examples
cure: all_reduce the sums with their gradient before the ratio
line: loss = 1 - 2 * sums[0] / sums[1]
"""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.2)
    for X, y in batches:
        optimizer.zero_grad()
        p, wanted = net(X)[:, 0].sigmoid(), (y > 1).to(X.dtype)
        sums = torch.stack([(p * wanted).sum(), p.sum() + wanted.sum()])
        loss = 1 - 2 * sums[0] / sums[1]
        loss.backward()
        optimizer.step()
