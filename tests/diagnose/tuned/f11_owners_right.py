"""right: each trained parameter has an owner, in turn, which steps and sends; the frozen one is in neither list."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    k, rank = dist.get_world_size(), dist.get_rank()
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    net[0].bias.requires_grad_(False)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam([p for i, p in enumerate(trained) if i % k == rank], 0.01)
    for X, y in batches:
        net.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for p in trained:
            dist.all_reduce(p.grad)
            p.grad /= k
        optimizer.step()
        for i, p in enumerate(trained):
            dist.broadcast(p.data, src=i % k)
