"""wrong: the consistency penalty is computed through ddp.module and run back in a second backward of its own, after DDP has finished, so its gradient is never averaged.

cause: a second backward through ddp.module (bypassing DDP) adds unsynchronised gradients
cure: add the penalty to the main loss and call backward once
line: penalty.backward()
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(141)
X = torch.randn(96, 5, generator=g)
y = torch.randint(3, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))


def input_smoothness(net, x, weight=0.5):
    x = x.detach().clone().requires_grad_(True)
    out = net(x).logsumexp(1).sum()
    (gx,) = torch.autograd.grad(out, x, create_graph=True)
    return weight * gx.pow(2).sum(1).mean()


def train(net, batches):
    ddp = DDP(net)
    opt = torch.optim.Adam(ddp.parameters(), lr=5e-3)
    for x, y in batches:
        opt.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        loss.backward()
        penalty = input_smoothness(ddp.module, x)
        penalty.backward()
        opt.step()
