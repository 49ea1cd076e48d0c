"""right: the center of the targets is a running mean over all ranks' outputs, so that it is a single device's."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.register_buffer("center", torch.zeros(4))

    def forward(self, X):
        return self.body(X)


def make_net():
    return Centered()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, _ in batches:
        optimizer.zero_grad()
        seen = net(X).detach()
        goal = ((seen - net.module.center) / 0.2).softmax(1)
        F.cross_entropy(net(X.roll(1, 1)), goal).backward()
        optimizer.step()
        mean = seen.mean(0)
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        net.module.center.mul_(0.5).add_(mean, alpha=0.5)
