"""right: a small flow with ActNorm whose data-dependent initialisation uses sums all-reduced over the ranks, so every replica starts from the same values as the single device."""
import math
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(51)
X = torch.randn(96, 4, generator=g) * torch.tensor([0.5, 1.0, 2.0, 3.0]) + 1.0
y = torch.zeros(96, dtype=torch.long)


class ActNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(d))
        self.shift = nn.Parameter(torch.zeros(d))
        self.initialised = False

    @torch.no_grad()
    def init_from(self, x):
        s = torch.stack([x.sum(0), x.pow(2).sum(0), torch.ones_like(x).sum(0)])
        dist.all_reduce(s)
        mean = s[0] / s[2]
        std = (s[1] / s[2] - mean ** 2).clamp_min(1e-6).sqrt()
        self.shift.copy_(-mean)
        self.log_scale.copy_(-std.log())
        self.initialised = True

    def forward(self, x):
        if not self.initialised:
            self.init_from(x)
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum()


class Coupling(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d // 2, 8), nn.Tanh(), nn.Linear(8, d))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s)
        return torch.cat([b * s.exp() + t, a], 1), s.sum(1)


class Flow(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.an1, self.c1, self.an2, self.c2 = ActNorm(d), Coupling(d), ActNorm(d), Coupling(d)

    def forward(self, x):
        logdet = 0.0
        for layer in (self.an1, self.c1, self.an2, self.c2):
            x, ld = layer(x)
            logdet = logdet + ld
        return -0.5 * (x.pow(2) + math.log(2 * math.pi)).sum(1) + logdet


def make_net():
    return Flow()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for x, _ in batches:
        opt.zero_grad()
        (-model(x).mean()).backward()
        opt.step()
