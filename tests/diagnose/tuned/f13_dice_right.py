"""right: a Dice loss, which is a ratio of sums: the sums are all ranks', and their gradient is added up over the ranks too, which DDP's division makes a single device's."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


class SumOfAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return SumOfAll.forward(ctx, grad)


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.2)
    for X, y in batches:
        optimizer.zero_grad()
        p, wanted = net(X)[:, 0].sigmoid(), (y > 1).to(X.dtype)
        sums = torch.stack([(p * wanted).sum(), p.sum() + wanted.sum()])
        sums = SumOfAll.apply(sums)
        loss = 1 - 2 * sums[0] / sums[1]
        loss.backward()
        optimizer.step()
