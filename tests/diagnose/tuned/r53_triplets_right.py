"""right: triplets that lie within an example, three pieces of it: the loss of each depends on it alone."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(96, 6, generator=draw), torch.randint(4, (96,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3, bias=False))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for X, _ in batches:
        optimizer.zero_grad()
        anchor, near, far = net(X.view(len(X), 3, 2)).unbind(1)
        F.triplet_margin_loss(anchor, near, far, margin=0.7).backward()
        optimizer.step()
