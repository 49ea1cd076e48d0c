"""wrong: micro-batches are added up until a rank's own examples reach the goal of all ranks together, so that k times as many examples go before a step.

kind: F7
cause: k times as many examples go before each step: the rank's own examples are compared with the goal of all ranks
cure: add the examples of all ranks to seen
line: seen += len(y)
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
    goal = torch.tensor(float(len(batches[0][1])))
    dist.all_reduce(goal)  # examples for a step, on all ranks together
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    seen = torch.zeros(())
    for X, y in batches:
        F.cross_entropy(net(X), y, reduction="sum").backward()
        seen += len(y)
        if seen >= goal:
            for p in net.parameters():
                p.grad /= seen
            optimizer.step()
            optimizer.zero_grad()
            seen.zero_()
