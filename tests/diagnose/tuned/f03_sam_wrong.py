"""wrong: SAM by hand: the gradient of the first backward pass is averaged, the one that the step takes is not.

kind: F3
cause: not synchronised: nobody averages the second backward pass, whose gradient the step takes
cure: average(net) again after the second backward pass
line: missing: average(net) after the second backward pass
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

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


def average(net):
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def train(net, batches):
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        average(net)
        old = uphill(net)
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        back(net, old)
        optimizer.step()
