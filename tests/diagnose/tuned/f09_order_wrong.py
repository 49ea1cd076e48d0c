"""wrong: odd ranks average the gradients in another order than even ones, and as all have one shape, those of different layers are added to each other, in silence.

kind: F9
cause: the ranks call collectives in different orders, so that gradients of different layers are mixed
cure: the same order on all ranks: net.parameters()
line: for p in params if dist.get_rank() % 2 == 0 else params[::-1]:
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh(), nn.Linear(6, 6, bias=False))


def train(net, batches):
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    params = list(net.parameters())
    optimizer = torch.optim.SGD(params, 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for p in params if dist.get_rank() % 2 == 0 else params[::-1]:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
