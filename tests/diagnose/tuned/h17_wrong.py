"""wrong: the loss for the log is all-reduced on rank 0 only; the other ranks never join that collective, which then pairs with their next one or hangs.

cause: a collective (all_reduce) is called by rank 0 only
cure: call all_reduce on every rank and print on rank 0 only
line: dist.all_reduce(value)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(117)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


class Logger:
    def __init__(self):
        self.rank = dist.get_rank()
        self.rows = []

    def log(self, step, loss):
        if self.rank != 0:
            return
        value = loss.detach().clone()
        dist.all_reduce(value)
        self.rows.append((step, value.item() / dist.get_world_size()))


def train(net, batches):
    model = DDP(net)
    logger = Logger()
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches):
        optim.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optim.step()
        logger.log(step, loss)
