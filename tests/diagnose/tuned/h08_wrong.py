"""wrong: the forward passes run under no_sync and the backward after it; DDP arms its reducer in forward, so that the backward does not synchronise at all.

cause: forward inside no_sync while the backward that should synchronise is outside
cure: run the forward whose backward must synchronise outside no_sync as well
line: losses = [criterion(model(a), b) * (len(a) / len(x)) for a, b in micro]
"""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(108)
X = torch.randn(96, 5, generator=g)
y = torch.randn(96, 1, generator=g)


class Reg(nn.Module):
    def __init__(self):
        super().__init__()
        self.seq = nn.Sequential(nn.Linear(5, 12), nn.SiLU(), nn.Linear(12, 1))

    def forward(self, x):
        return self.seq(x)


def make_net():
    return Reg()


def train(net, batches):
    model = DDP(net)
    criterion = nn.MSELoss()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, t in batches:
        opt.zero_grad()
        micro = list(zip(x.chunk(2), t.chunk(2)))
        with model.no_sync():
            losses = [criterion(model(a), b) * (len(a) / len(x)) for a, b in micro]
        total = torch.stack(losses).sum()
        total.backward()  # one backward, one synchronisation
        opt.step()
