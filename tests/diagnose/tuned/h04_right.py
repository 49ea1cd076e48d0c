"""right: gradients are accumulated locally over up to 5 micro-batches without any wrapper and all-reduced once (mean) before the step; weights are broadcast from rank 0 first."""
import math
import torch
from torch import nn
import torch.nn.functional as F
import torch.distributed as dist

gen = torch.Generator().manual_seed(4)
X = torch.randn(120, 7, generator=gen)
y = torch.randint(3, (120,), generator=gen)


def make_net():
    return nn.Sequential(nn.Linear(7, 20), nn.SiLU(), nn.Linear(20, 20), nn.SiLU(), nn.Linear(20, 3))


class Trainer:
    def __init__(self, net, micro_batches=5):
        self.net, self.m = net, micro_batches
        self.world = dist.get_world_size()
        for p in net.parameters():
            dist.broadcast(p.data, src=0)
        self.opt = torch.optim.RMSprop(net.parameters(), lr=2e-3)

    def accumulate(self, x, y):
        size = math.ceil(len(x) / self.m)
        for mx, my in zip(x.split(size), y.split(size)):
            (F.cross_entropy(self.net(mx), my, reduction="sum") / len(x)).backward()

    def sync(self):
        for p in self.net.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad.div_(self.world)

    def step(self, x, y):
        self.opt.zero_grad()
        self.accumulate(x, y)
        self.sync()
        self.opt.step()


def train(net, batches):
    t = Trainer(net)
    for x, y in batches:
        t.step(x, y)
