"""right: a communication hook gathers the buckets of all ranks and gives their mean, as DDP would."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def mean_of_all(state, bucket):
    parts = [torch.empty_like(bucket.buffer()) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, bucket.buffer())
    done = torch.futures.Future()
    done.set_result(torch.stack(parts).mean(0))
    return done


def train(net, batches):
    net = DDP(net)
    net.register_comm_hook(None, mean_of_all)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
