"""wrong: the pass that trains stands in the same no_sync as the look at the gradient before it.

kind: F3
cause: the pass that trains is in no_sync: nothing is exchanged
cure: end the no_sync block before the forward pass that trains
line: with net.no_sync():  # no need to send a look
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
        with net.no_sync():  # no need to send a look
            F.cross_entropy(net(X), 3 - y).backward()
            length = nn.utils.get_total_norm([p.grad for p in net.parameters()])
            optimizer.zero_grad()
            F.cross_entropy(net(X), y).backward()
        optimizer.step()
