"""wrong: the flat vector of all gradients is averaged and never copied back, so that each rank steps with its own.

kind: new
cause: the average is written to another tensor (flat) and not back into grad
cure: copy the parts of flat into p.grad after the all_reduce
line: missing: the parts of flat copied back into p.grad
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        flat = torch.cat([p.grad.flatten() for p in net.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        optimizer.step()
