"""wrong: rank 0 alone evaluates through the DDP wrapper of a net with BatchNorm buffers; that forward broadcasts the buffers, a collective the other ranks do not join, so the calls get out of step and hang or crash.

cause: forward through the DDP wrapper on rank 0 only (its buffer broadcast is a collective)
cure: evaluate ddp.module on rank 0, or evaluate on all ranks
line: validate(model, batches[0])
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(149)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


@torch.no_grad()
def validate(model, batch):
    model.eval()
    x, y = batch
    acc = (model(x).argmax(1) == y).to(x.dtype).mean().item()
    model.train()
    return acc


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
        if dist.get_rank() == 0:
            validate(model, batches[0])
