"""right: accumulation in 3 uneven micro-batches with a nullcontext/no_sync switch on the last one, each loss being a sum divided by the shard's size."""
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(3)
X = torch.randn(96, 5, generator=g)
y = X[:, :2] * 1.5 - 0.3 + 0.1 * torch.randn(96, 2, generator=g)

ACCUM = 3


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 16)
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.norm(self.inp(x))))


def make_net():
    return Regressor()


def run_micro_batches(model, x, y):
    micro = list(zip(x.chunk(ACCUM), y.chunk(ACCUM)))
    for step, (mx, my) in enumerate(micro):
        is_last = step == len(micro) - 1
        with nullcontext() if is_last else model.no_sync():
            out = model(mx)
            loss = F.mse_loss(out, my, reduction="sum") / y.numel()
            loss.backward()


def train(net, batches):
    model = DDP(net, gradient_as_bucket_view=True)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, t in batches:
        opt.zero_grad()
        run_micro_batches(model, x, t)
        opt.step()
