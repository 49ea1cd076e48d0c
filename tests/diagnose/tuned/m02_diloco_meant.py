"""meant: DiLoCo: each rank trains by itself with AdamW, and then the mean way that all have gone is the gradient of an outer step with momentum, from where all began.

differs: the ranks step with their own gradients and meet only in the outer step
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
    inner = torch.optim.AdamW(net.parameters(), 0.01)
    start = [p.detach().clone() for p in net.parameters()]
    speed = [torch.zeros_like(p) for p in start]
    for t, (X, y) in enumerate(batches, 1):
        inner.zero_grad()
        F.cross_entropy(net(X), y).backward()
        inner.step()
        if t % 2 == 0 or t == len(batches):
            with torch.no_grad():
                for p, s, v in zip(net.parameters(), start, speed):
                    way = (s - p) / k
                    dist.all_reduce(way)
                    v.mul_(0.9).add_(way)
                    s.sub_(0.7 * (way + 0.9 * v))
                    p.copy_(s)
