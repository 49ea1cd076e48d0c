"""right: a custom autograd function (straight-through binarisation) acts example by example inside a DDP-wrapped net."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(20)
X = torch.randn(96, 9, generator=g)
y = torch.randint(3, (96,), generator=g)


class BinarizeSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x))

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * (x.abs() <= 1).to(grad_out.dtype)


class BinaryNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(9, 32)
        self.l2 = nn.Linear(32, 3)
        self.alpha = nn.Parameter(torch.ones(32))

    def forward(self, x):
        return self.l2(self.alpha * BinarizeSTE.apply(self.l1(x)))


def make_net():
    return BinaryNet()


def train(net, batches):
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, y in batches:
        loss = F.multi_margin_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
