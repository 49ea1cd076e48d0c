"""wrong: rank 0 alone calls all_reduce for its log, and the others are already at the next exchange of gradients.

kind: F9
cause: the ranks call different collectives: rank 0 one more, for its log
cure: call the all_reduce on all ranks, and write the log on rank 0 only
line: dist.all_reduce(total)
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
    net = DDP(net)
    optimizer, log = torch.optim.SGD(net.parameters(), 0.1), []
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            total = loss.detach().clone()
            dist.all_reduce(total)
            log.append(total.item() / dist.get_world_size())
