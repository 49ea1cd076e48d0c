"""wrong: the sum over the shard is divided by the examples of all ranks, DDP divides again, and the clipping that bites in every step hides it.

kind: F0b
cause: divided twice: by the examples of all ranks and by DDP
cure: multiply the loss by dist.get_world_size(), or take the mean over the shard
line: loss = F.cross_entropy(net(X), y, reduction="sum") / count
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


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for X, y in batches:
        count = torch.tensor(float(len(y)))
        dist.all_reduce(count)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y, reduction="sum") / count
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.02)
        optimizer.step()
