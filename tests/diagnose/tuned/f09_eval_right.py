"""right: rank 0 alone evaluates, by the inner module, which sends nothing, and the others wait at a barrier; with BatchNorm of the shard, for a note."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    X_test = batches[0][0][:4].clone()
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        if dist.get_rank() == 0:
            net.eval()
            with torch.no_grad():
                net.module(X_test).argmax(1)
            net.train()
        dist.barrier()
