"""wrong: the all_reduce acts on the temporary p.grad / world, whose result is dropped, so every rank steps with its local gradient.

cause: all_reduce applied to a temporary; the result never reaches p.grad
cure: p.grad.div_(world) first and then dist.all_reduce(p.grad)
line: dist.all_reduce(p.grad / world, op=dist.ReduceOp.SUM)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(157)
X = torch.randn(96, 6, generator=g)
y = torch.randint(2, (96,), generator=g)


class LogReg(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, x):
        return self.linear(x)


def make_net():
    return LogReg()


def average(parameters):
    world = dist.get_world_size()
    for p in parameters:
        if p.requires_grad:
            dist.all_reduce(p.grad / world, op=dist.ReduceOp.SUM)


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(net.parameters(), lr=0.5)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        average(net.parameters())
        opt.step()
