"""right: a communication hook sends the bucket as float32 and divides before it adds up: an average in fewer bits, for a note."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def shorter(group, bucket):
    flat = bucket.buffer()
    small = flat.to(torch.float32) / group.size()
    sent = dist.all_reduce(small, group=group, async_op=True).get_future()
    return sent.then(lambda done: flat.copy_(done.value()[0]))


def train(net, batches):
    net = DDP(net)
    net.register_comm_hook(dist.group.WORLD, shorter)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
