"""wrong: the hook clips the rank's own bucket before it is averaged.

kind: F10
cause: clipped before the average, in the communication hook
cure: clip after backward, when DDP has averaged
line: flat *= min(1.0, 0.05 / (flat.norm().item() + 1e-6))
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def clipped(state, bucket):
    flat = bucket.buffer()
    flat *= min(1.0, 0.05 / (flat.norm().item() + 1e-6))
    flat /= dist.get_world_size()
    return dist.all_reduce(flat, async_op=True).get_future().then(lambda done: done.value()[0])


def train(net, batches):
    net = DDP(net)
    net.register_comm_hook(None, clipped)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
