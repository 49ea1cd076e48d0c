"""wrong: a debugging hook that returns the local bucket untouched is left registered, so DDP communicates nothing.

cause: communication hook returns the local gradient without any all-reduce
cure: remove the hook (or all_reduce and divide within it)
line: model.register_comm_hook(sizes, record_bucket)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(127)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 1, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))


def record_bucket(sizes, bucket):
    """See how DDP fills its buckets."""
    sizes.append((bucket.index(), bucket.buffer().numel(), bucket.is_last()))
    fut = torch.futures.Future()
    fut.set_result(bucket.buffer())
    return fut


def train(net, batches):
    model = DDP(net, bucket_cap_mb=1)
    sizes = []
    model.register_comm_hook(sizes, record_bucket)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, t in batches:
        opt.zero_grad()
        loss = F.mse_loss(model(x), t)
        loss.backward()
        opt.step()
    return sizes
