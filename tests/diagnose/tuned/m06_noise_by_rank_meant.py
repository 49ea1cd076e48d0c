"""meant: inputs get noise from a generator of the rank's own, so that no two ranks draw the same.

differs: the ranks' noise is not that of a single device, whose minibatch is noised by one generator
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
    draw = torch.Generator().manual_seed(1000 + dist.get_rank())
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        noisy = X + 0.2 * torch.randn(X.shape, generator=draw, dtype=X.dtype)
        optimizer.zero_grad()
        F.cross_entropy(net(noisy), y).backward()
        optimizer.step()
