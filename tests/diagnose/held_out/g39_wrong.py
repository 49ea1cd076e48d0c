"""wrong: ActNorm sets its scale and bias from the first batch it sees; under DDP this happens after the broadcast and on the rank's own shard, so the replicas start from different parameters.

cause: data-dependent initialisation from the local shard makes the parameters differ between ranks
cure: all_reduce the statistics in the initialisation, or broadcast the parameters from one rank after the first forward
line: mean, std = h.mean(0), h.std(0)
"""
import math

import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(390)
X = torch.randn(96, 6) @ torch.randn(6, 6) + 2.0
y = torch.zeros(96)


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))
        self.logs = nn.Parameter(torch.zeros(dim))
        self.ready = False

    def forward(self, h):
        if not self.ready:
            with torch.no_grad():
                mean, std = h.mean(0), h.std(0)
                self.bias.copy_(-mean)
                self.logs.copy_(-(std + 1e-6).log())
            self.ready = True
        return (h + self.bias) * self.logs.exp(), self.logs.sum()


class Coupling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim // 2, 16), nn.ReLU(), nn.Linear(16, dim))

    def forward(self, h):
        a, b = h.chunk(2, dim=1)
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        return torch.cat([b * s.exp() + t, a], dim=1), s.sum(1)


class Flow(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.steps = nn.ModuleList([ActNorm(dim), Coupling(dim), ActNorm(dim), Coupling(dim)])

    def forward(self, x):
        logdet = 0.0
        for s in self.steps:
            x, ld = s(x)
            logdet = logdet + ld
        return -0.5 * (x ** 2 + math.log(2 * math.pi)).sum(1) + logdet


def make_net():
    return Flow()


def train(net, batches):
    flow = DDP(net)
    opt = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for x, _ in batches:
        opt.zero_grad()
        (-flow(x).mean()).backward()
        opt.step()
