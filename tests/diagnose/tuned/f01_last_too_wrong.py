"""wrong: an index that counts from one puts the last of five micro-batches into no_sync as well, so that nothing is ever sent.

kind: F1
cause: no_sync around all micro-batches, the last one too
cure: i < len(parts) when counted from one, so that the last one is sent
line: with net.no_sync() if i <= len(parts) else nullcontext():
"""

from contextlib import nullcontext

import torch
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
        parts = list(zip(X.tensor_split(5), y.tensor_split(5)))
        for i, (A, c) in enumerate(parts, 1):
            with net.no_sync() if i <= len(parts) else nullcontext():
                (F.cross_entropy(net(A), c, reduction="sum") / len(y)).backward()
        optimizer.step()
