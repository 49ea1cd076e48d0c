"""wrong: the hook divides by the number of ranks what PyTorch's own hook has averaged already.

kind: F10
cause: averaged twice, in the communication hook: allreduce_hook divides, and the hook divides again
cure: return allreduce_hook(group, bucket) as it is
line: return mean.then(lambda done: done.value() / group.size())
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def average(group, bucket):
    mean = allreduce_hook(group, bucket)
    return mean.then(lambda done: done.value() / group.size())


def train(net, batches):
    net = DDP(net)
    net.register_comm_hook(dist.group.WORLD, average)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
