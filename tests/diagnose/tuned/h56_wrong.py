"""wrong: only rank 0 calls optimizer.step() and nothing sends the new weights out, so the other ranks keep computing gradients at the initial weights.

cause: optimizer.step() on rank 0 only, without broadcasting the weights
cure: step on every rank (DDP gives all the same gradient)
line: if self.rank == 0:
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(156)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 1, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


class Runner:
    def __init__(self, net):
        self.rank = dist.get_rank()
        self.model = DDP(net)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.2)

    def step(self, x, t):
        loss = F.mse_loss(self.model(x), t)
        self.opt.zero_grad()
        loss.backward()
        if self.rank == 0:
            self.opt.step()
        return loss.item()


def train(net, batches):
    runner = Runner(net)
    for x, t in batches:
        runner.step(x, t)
