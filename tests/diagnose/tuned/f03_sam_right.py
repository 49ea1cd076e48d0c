"""right: SAM with DDP: the step uphill goes along the averaged gradient, so that all ranks go to the same place, and the second backward pass is averaged too."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def uphill(net):
    """Moves the parameters along their gradient, and gives what they were."""
    length = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    old = [p.detach().clone() for p in net.parameters()]
    with torch.no_grad():
        for p in net.parameters():
            p += 0.05 * p.grad / (length + 1e-12)
    return old


def back(net, old):
    with torch.no_grad():
        for p, x in zip(net.parameters(), old):
            p.copy_(x)


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        old = uphill(net)
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        back(net, old)
        optimizer.step()
