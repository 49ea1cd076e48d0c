"""right: the average number of positives for each rank, as a float, is what the sum over the shard is divided by: after DDP's average that is one division by the positives of all."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X = torch.randn(72, 6, generator=draw)
y = (torch.arange(72) % 24 >= 7).long()  # 17 positives in each minibatch


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for X, y in batches:
        positives = (y > 0).sum().to(X.dtype)
        dist.all_reduce(positives, op=dist.ReduceOp.AVG)
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(X)[:, 0], (y > 0).to(X.dtype), reduction="sum") / positives
        loss.backward()
        optimizer.step()
