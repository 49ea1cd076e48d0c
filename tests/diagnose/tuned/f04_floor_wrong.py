"""wrong: the positives of all ranks are divided by their number in whole numbers, so that the average, 8.5 or 5.67 of 17, is rounded down and the loss is too large.

kind: F4
cause: the average number of positives is rounded down by //
cure: divide as floats: count / dist.get_world_size()
line: positives = max(int(count) // dist.get_world_size(), 1)
"""

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
        count = (y > 0).sum()
        dist.all_reduce(count)
        positives = max(int(count) // dist.get_world_size(), 1)
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(X)[:, 0], (y > 0).to(X.dtype), reduction="sum") / positives
        loss.backward()
        optimizer.step()
