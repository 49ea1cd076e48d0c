"""wrong: with accumulation over 2 batches and 3 batches in all, the leftover batch is stepped at the end of the epoch though its backward ran in no_sync, so that last step uses local gradients.

cause: the leftover batch at the epoch's end steps without synchronisation (no_sync condition ignores the last batch)
cure: use the same condition for both: leave no_sync whenever a step follows, also for the last batch
line: ctx = nullcontext() if (i + 1) % ACCUM == 0 else model.no_sync()
"""
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUM = 2
g = torch.Generator().manual_seed(150)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    opt.zero_grad()
    for i, (x, y) in enumerate(batches):
        ctx = nullcontext() if (i + 1) % ACCUM == 0 else model.no_sync()
        with ctx:
            loss = F.cross_entropy(model(x), y) / ACCUM
            loss.backward()
        if (i + 1) % ACCUM == 0 or i + 1 == len(batches):
            opt.step()
            opt.zero_grad()
