"""right: an optimizer of one's own, which steps by signs of the averaged gradient's running mean: the same signs on all ranks."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            one, two = group["betas"]
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p -= group["lr"] * (one * mean + (1 - one) * p.grad).sign()
                mean.mul_(two).add_(p.grad, alpha=1 - two)


def train(net, batches):
    net = DDP(net)
    optimizer = Lion(net.parameters())
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
