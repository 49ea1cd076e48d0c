"""wrong: the sum over the shard is divided by the batch size of the settings, which is that of all ranks, and DDP divides again.

kind: new
cause: divided twice: by the whole batch size (a constant) and by DDP
cure: divide by len(y), the shard's size
line: loss = each.sum() / BATCH
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


BATCH = 24  # of the settings, for all ranks together


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    for X, y in batches:
        optimizer.zero_grad()
        each = F.cross_entropy(net(X), y, reduction="none")
        loss = each.sum() / BATCH
        loss.backward()
        optimizer.step()
