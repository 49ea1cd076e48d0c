"""wrong: LoRA adapters are injected after DDP was built, so their parameters are neither broadcast nor reduced and every rank trains its own adapters.

cause: parameters added after wrapping in DDP are unknown to the reducer
cure: inject the adapters first, then wrap: net = add_adapters(net); model = DDP(net)
line: add_adapters(model.module)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(120)
X = torch.randn(96, 8, generator=g)
y = torch.randint(3, (96,), generator=g)


class Adapter(nn.Module):
    def __init__(self, dim, rank=2):
        super().__init__()
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim, bias=False)

    def forward(self, h):
        return h + self.up(self.down(h))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.adapter = nn.Identity()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.relu(self.adapter(self.body(x))))


def make_net():
    net = Net()
    net.body.requires_grad_(False)
    return net


def add_adapters(net):
    w = net.body.weight
    net.adapter = Adapter(w.shape[0]).to(w.dtype)


def train(net, batches):
    model = DDP(net)
    add_adapters(model.module)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
