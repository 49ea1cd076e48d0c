"""wrong: the communication hook all-reduces the bucket and returns the sum; with a hook, DDP no longer divides by itself, so the gradient is k times too large.

cause: custom DDP communication hook forgets to divide by the world size
cure: divide the bucket by the world size before the all_reduce (or the result in then())
line: fut = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
"""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(126)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


class CommTimer:
    def __init__(self):
        self.seconds = 0.0
        self.bytes = 0


def timed_allreduce(timer, bucket):
    start = time.time()
    timer.bytes += bucket.buffer().numel() * bucket.buffer().element_size()
    fut = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

    def done(f):
        timer.seconds += time.time() - start
        return f.value()[0]

    return fut.then(done)


def train(net, batches):
    model = DDP(net)
    timer = CommTimer()
    model.register_comm_hook(timer, timed_allreduce)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    return timer.bytes
