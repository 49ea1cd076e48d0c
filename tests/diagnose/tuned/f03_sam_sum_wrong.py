"""wrong: SAM by hand: both gradients are added up over the ranks and never divided; for the first that does not matter, as it is normalised, for the second it does.

kind: F3
cause: summed: the gradient of the second backward pass is not divided by the number of ranks
cure: divide by dist.get_world_size() after the all_reduce
line: dist.all_reduce(p.grad)
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(12)
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
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for X, y in batches:
        for second in (False, True):
            optimizer.zero_grad()
            F.cross_entropy(net(X), y).backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
            if not second:
                old = uphill(net)
        back(net, old)
        optimizer.step()
