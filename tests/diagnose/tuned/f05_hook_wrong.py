"""wrong: a hook left on the head multiplies its gradient by the number of ranks, from the days when the script divided the loss by hand.

kind: F5
cause: the gradient of the head (2.weight, 2.bias) is multiplied by the number of ranks
cure: remove the hook
line: p.register_hook(lambda grad: grad * dist.get_world_size())
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
    for p in net[2].parameters():
        p.register_hook(lambda grad: grad * dist.get_world_size())
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
