"""wrong: every rank gathers all features with gradient and computes the whole loss, which is already exact under DDP, and then multiplies it by the world size: the gradient is k times too large.

cause: full gathered loss multiplied by the world size although the gather's backward already sums over ranks
cure: drop the factor dist.get_world_size()
line: loss = info_nce(gather(a), gather(b)) * dist.get_world_size()
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.distributed.nn.functional as distF
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(180)
X = torch.randn(96, 8, generator=g)
y = torch.zeros(96, dtype=torch.long)


class TwoViews(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 6))

    def forward(self, x):
        z = F.normalize(self.f(x.view(-1, 2, 4)), dim=-1)
        return z[:, 0], z[:, 1]


def make_net():
    return TwoViews()


def gather(t):
    return torch.cat(distF.all_gather(t.contiguous()), dim=0)


def info_nce(a, b, tau=0.3):
    logits = a @ b.t() / tau
    target = torch.arange(len(a))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, _ in batches:
        a, b = model(x)
        loss = info_nce(gather(a), gather(b)) * dist.get_world_size()
        opt.zero_grad()
        loss.backward()
        opt.step()
