"""wrong: dist.reduce delivers the summed gradient to rank 0 only; the others step with something else and the replicas part.

cause: reduce to rank 0 used where all_reduce is needed
cure: use dist.all_reduce(p.grad)
line: dist.reduce(p.grad, dst=0, op=dist.ReduceOp.SUM)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(131)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


class DistributedOptimizer:
    def __init__(self, opt, params):
        self.opt, self.params = opt, list(params)
        for p in self.params:
            dist.broadcast(p.data, src=0)

    def zero_grad(self):
        self.opt.zero_grad()

    def step(self):
        for p in self.params:
            dist.reduce(p.grad, dst=0, op=dist.ReduceOp.SUM)
            p.grad /= dist.get_world_size()
        self.opt.step()


def train(net, batches):
    opt = DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.parameters())
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
