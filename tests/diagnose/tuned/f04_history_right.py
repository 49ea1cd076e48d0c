"""right: the bound follows the norms of earlier averaged gradients, which are the same on all ranks and on a single device."""

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
    optimizer, norms = torch.optim.SGD(net.parameters(), 0.3), []
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        bound = 0.8 * sum(norms) / len(norms) if norms else 0.1
        norms.append(nn.utils.clip_grad_norm_(net.parameters(), bound).item())
        optimizer.step()
