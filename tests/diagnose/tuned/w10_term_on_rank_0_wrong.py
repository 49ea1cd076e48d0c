"""wrong: a second term of the loss is added on rank 0 only, where it was to be logged, so that DDP's average has 1/k of it, from one shard.

kind: new
cause: a term of the loss is added on rank 0 only
cure: add it on all ranks
line: loss = loss + 0.3 * scores.square().mean()
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
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        scores = net(X)
        loss = F.cross_entropy(scores, y)
        if dist.get_rank() == 0:
            loss = loss + 0.3 * scores.square().mean()
        loss.backward()
        optimizer.step()
