"""wrong: a much copied gather gives the own rows their gradient of this rank's loss only; the loss of all pairs is the same on all ranks, and DDP takes 1/k.

kind: new
cause: the backward of the gather keeps the own rank's gradient only, and DDP divides: 1/k of a single device's
cure: add up the gradient over the ranks in backward, or multiply the loss by dist.get_world_size()
line: return grad.chunk(dist.get_world_size())[dist.get_rank()]
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, x.contiguous())
        return torch.cat(rows)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, _ in batches:
        optimizer.zero_grad()
        one, two = F.normalize(net(X), dim=1), F.normalize(net(X.roll(1, 1)), dim=1)
        scores = Gather.apply(one) @ Gather.apply(two).T / 0.5
        pairs = torch.arange(len(scores))
        loss = F.cross_entropy(scores, pairs) + F.cross_entropy(scores.T, pairs)
        loss.backward()
        optimizer.step()
