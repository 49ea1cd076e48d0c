"""wrong: the loop that averages goes through one optimizer's groups, and the second optimizer's parameters keep each rank's own gradient.

kind: F6
cause: the parameters of the second optimizer (0.weight, 0.bias) are not averaged
cure: average over the groups of both optimizers, or over net.parameters()
line: for group in for_head.param_groups:
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
    for_body = torch.optim.SGD(net[0].parameters(), 0.01)
    for_head = torch.optim.Adam(net[2].parameters(), 0.01)
    for X, y in batches:
        for_body.zero_grad()
        for_head.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for group in for_head.param_groups:
            for p in group["params"]:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        for_body.step()
        for_head.step()
