"""wrong: gradient noise is added after the averaging from a generator seeded by rank, so every rank steps with a different gradient and the replicas drift apart.

cause: per-rank random noise added to the already synchronised gradient
cure: seed the noise generator alike on all ranks, or broadcast the noise
line: self.gen = torch.Generator().manual_seed(seed + dist.get_rank())
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(139)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


class LangevinNoise:
    def __init__(self, eta=0.01, gamma=0.55, seed=0):
        self.eta, self.gamma, self.t = eta, gamma, 0
        self.gen = torch.Generator().manual_seed(seed + dist.get_rank())

    @torch.no_grad()
    def add_to(self, params):
        self.t += 1
        std = (self.eta / self.t ** self.gamma) ** 0.5
        for p in params:
            p.grad += std * torch.randn(p.shape, generator=self.gen, dtype=p.dtype)


def train(net, batches):
    model = DDP(net)
    noise = LangevinNoise()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        noise.add_to(model.parameters())
        opt.step()
