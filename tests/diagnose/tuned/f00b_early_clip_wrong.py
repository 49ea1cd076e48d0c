"""wrong: each rank clips its own gradient before the average, and the right clipping after it, to the same bound, finds nothing left to clip.

kind: F0b
cause: clipped before the average, and once more after it
cure: leave out the first clip_grad_norm_
line: nn.utils.clip_grad_norm_(net.parameters(), 0.05)  # own
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
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)  # own
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        optimizer.step()
