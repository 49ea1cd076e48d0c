"""right: a buffer begins as plus infinity and keeps the lowest loss, which is averaged over the ranks before, so that all ranks keep the same number and none of it reaches a gradient."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.register_buffer("lowest", torch.tensor(float("inf")))

    def forward(self, X):
        return self.body(X)


def make_net():
    return Remembers()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        whole /= dist.get_world_size()
        net.module.lowest.copy_(torch.minimum(net.module.lowest, whole))
