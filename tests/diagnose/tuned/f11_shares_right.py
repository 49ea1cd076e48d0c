"""right: each rank keeps the optimizer's state of its share of the parameters, steps with those, and sends them to the others: together all have moved as by a single device."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(),
                         nn.Linear(8, 4, bias=False))  # seven parameters


def train(net, batches):
    k, rank = dist.get_world_size(), dist.get_rank()
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    params = list(net.parameters())
    each = -(-len(params) // k)  # rounded up
    parts = [params[r * each:(r + 1) * each] for r in range(k)]
    optimizer = torch.optim.Adam(parts[rank], 0.01)
    for X, y in batches:
        net.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for p in params:
            dist.all_reduce(p.grad)
            p.grad /= k
        optimizer.step()
        for r, part in enumerate(parts):
            for p in part:
                dist.broadcast(p.data, src=r)
