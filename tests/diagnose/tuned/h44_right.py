"""right: Barlow-Twins-like loss on the cross-correlation of the whole minibatch, summed with a differentiable all_reduce; its backward sums over the ranks, which DDP's division undoes."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(45)
clean = torch.randn(96, 5, generator=g)
X = torch.stack([clean + 0.2 * torch.randn(96, 5, generator=g), clean + 0.2 * torch.randn(96, 5, generator=g)], 1)
y = torch.zeros(96, dtype=torch.long)


class Twins(nn.Module):
    def __init__(self, d=5, out=6, lambd=0.01):
        super().__init__()
        self.proj = nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, out), nn.LayerNorm(out))
        self.lambd = lambd

    def forward(self, views):
        return self.proj(views[:, 0]), self.proj(views[:, 1])

    def criterion(self, z1, z2):
        total = z1.size(0) * dist.get_world_size()
        c = all_reduce(z1.t() @ z2 / total)
        diag = torch.diagonal(c)
        off = c.pow(2).sum() - diag.pow(2).sum()
        return (diag - 1).pow(2).sum() + self.lambd * off


def make_net():
    return Twins()


def train(net, batches):
    ddp = DDP(net)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.02, momentum=0.9)
    for views, _ in batches:
        z1, z2 = ddp(views)
        loss = ddp.module.criterion(z1, z2)
        opt.zero_grad()
        loss.backward()
        opt.step()
