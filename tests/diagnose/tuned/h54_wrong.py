"""wrong: ActNorm initialises its parameters from the first batch it sees, which is another shard on every rank, after DDP made the replicas equal; they start different.

cause: data-dependent initialisation from the local shard, after DDP's broadcast
cure: all_reduce the statistics in the initialisation, or broadcast the parameters after the first forward
line: mean, std = h.mean(0), h.std(0)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(154)
X = 2 + 3 * torch.randn(96, 6, generator=g)
y = torch.randint(3, (96,), generator=g)


class ActNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.loc, self.scale = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.ones(d))
        self.ready = False

    def forward(self, h):
        if not self.ready:
            with torch.no_grad():
                mean, std = h.mean(0), h.std(0)
                self.loc.copy_(-mean)
                self.scale.copy_(1 / (std + 1e-6))
            self.ready = True
        return (h + self.loc) * self.scale


def make_net():
    return nn.Sequential(ActNorm(6), nn.Linear(6, 16), ActNorm(16), nn.ReLU(), nn.Linear(16, 3))


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
