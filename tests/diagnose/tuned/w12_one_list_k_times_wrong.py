"""wrong: all ranks' gradients are gathered into a list that holds the same tensor k times, so that the mean is the last rank's gradient.

kind: new
cause: the list for all_gather holds one tensor k times: only the last rank's gradient remains
cure: a tensor for each rank: [torch.zeros_like(p.grad) for _ in range(k)]
line: grads = [torch.zeros_like(p.grad)] * k
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
    k = dist.get_world_size()
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for p in net.parameters():
            grads = [torch.zeros_like(p.grad)] * k
            dist.all_gather(grads, p.grad)
            p.grad = sum(grads) / k
        optimizer.step()
