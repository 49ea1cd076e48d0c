"""wrong: hooks add up the gradient over the ranks each time that it grows, so that the first micro-batch's sum is added up again with the second.

kind: new
cause: summed in each micro-batch: the hook runs after each backward pass, on what was summed before
cure: exchange once, after the last backward pass
line: p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad) and None)
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
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad) and None)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        for A, c in zip(X.chunk(2), y.chunk(2)):
            (F.cross_entropy(net(A), c, reduction="sum") / (len(y) * k)).backward()
        optimizer.step()
