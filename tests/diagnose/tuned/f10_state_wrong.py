"""wrong: the hook divides by a number in its state, the ranks on a machine of the cluster that it was written for, and not by the number of ranks.

kind: F10
cause: in the communication hook the sum is divided by a fixed number, 8, not by the number of ranks
cure: divide by dist.get_world_size() in the hook
line: net.register_comm_hook({"ranks": 8}, average)
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


def average(state, bucket):
    flat = bucket.buffer().div_(state["ranks"])
    return dist.all_reduce(flat, async_op=True).get_future().then(lambda done: done.value()[0])


def train(net, batches):
    net = DDP(net)
    net.register_comm_hook({"ranks": 8}, average)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
