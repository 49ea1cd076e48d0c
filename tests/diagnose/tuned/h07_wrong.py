"""wrong: every micro-batch, the last one too, runs inside no_sync, so gradients are never averaged and ranks step with their own.

cause: no_sync covers all micro-batches, so no backward synchronises
cure: leave the last micro-batch of each step outside no_sync
line: with model.no_sync():
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(107)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def accumulate(model, x, y, n_micro):
    """Big batches in small pieces; communicate as little as possible."""
    with model.no_sync():
        for mx, my in zip(x.chunk(n_micro), y.chunk(n_micro)):
            loss = F.cross_entropy(model(mx), my, reduction="sum") / len(x)
            loss.backward()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for x, y in batches:
        opt.zero_grad()
        accumulate(model, x, y, 4)
        opt.step()
