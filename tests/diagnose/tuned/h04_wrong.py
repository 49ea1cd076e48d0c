"""wrong: during accumulation the gradient is clipped after every micro-batch, including the unsynchronised local ones, so ranks clip their own partial sums before the average.

cause: clipping of local, not yet averaged gradients inside the accumulation loop
cure: clip once, after the last (synchronised) backward and just before optimizer.step()
line: nn.utils.clip_grad_norm_(model.parameters(), 0.1)
"""
import contextlib
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(104)
X = 2 * torch.randn(96, 6, generator=g)
y = torch.randn(96, 1, generator=g) * 3

ACC = 2


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, t in batches:
        opt.zero_grad()
        pieces = list(zip(x.chunk(ACC), t.chunk(ACC)))
        for i, (px, pt) in enumerate(pieces):
            last = i == len(pieces) - 1
            ctx = contextlib.nullcontext() if last else model.no_sync()
            with ctx:
                (F.mse_loss(model(px), pt) * len(px) / len(x)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()
