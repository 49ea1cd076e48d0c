"""wrong: a custom communication hook sums the buckets over ranks but never divides by the world size; a comm hook replaces DDP's division, so gradients are world-size times too large.

cause: communication hook all-reduces the sum without dividing by world_size
cure: divide the bucket by the world size (before or after the all_reduce)
line: fut = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
"""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(290)
X = torch.randn(96, 4, 6)
y = X.mean(dim=1).abs()


class DeepSet(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(6, 20), nn.ELU(), nn.Linear(20, 20))
        self.rho = nn.Sequential(nn.Linear(20, 20), nn.ELU(), nn.Linear(20, 6))

    def forward(self, x):
        return self.rho(self.phi(x).sum(dim=1))


def make_net():
    return DeepSet()


class TimedReduce:
    """All-reduce with a little statistics on bucket sizes."""

    def __init__(self):
        self.bytes, self.started = 0, []

    def __call__(self, state, bucket):
        self.bytes += bucket.buffer().numel() * bucket.buffer().element_size()
        self.started.append(time.perf_counter())
        fut = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return fut.then(lambda f: f.value()[0])


def train(net, batches):
    model = DDP(net, bucket_cap_mb=1)
    stats = TimedReduce()

    def hook(state, bucket):
        return stats(state, bucket)

    model.register_comm_hook(None, hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for sets, target in batches:
        opt.zero_grad()
        nn.functional.mse_loss(model(sets), target).backward()
        opt.step()
