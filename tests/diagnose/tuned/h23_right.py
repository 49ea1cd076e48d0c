"""right: DDP with PyTorch's own fp16 compression hook; the average is exact up to half-precision rounding, a standard and intended trade."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as default
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(24)
X = torch.randn(96, 8, generator=g)
y = torch.randint(5, (96,), generator=g)


class MLP(nn.Module):
    def __init__(self, sizes=(8, 24, 24, 5)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        for lin in self.layers[:-1]:
            x = torch.relu(lin(x))
        return self.layers[-1](x)


def make_net():
    return MLP()


def train(net, batches):
    model = DDP(net)
    model.register_comm_hook(dist.group.WORLD, default.fp16_compress_hook)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in batches:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
