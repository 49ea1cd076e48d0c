"""wrong: gradual unfreezing turns the backbone's requires_grad on after DDP was built with it frozen, so the backbone's gradients are never reduced.

cause: parameters unfrozen after wrapping are not in DDP's reducer
cure: wrap again after unfreezing, or wrap with everything trainable and freeze by a zero learning rate
line: p.requires_grad = True
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(123)
X = torch.randn(96, 8, generator=g)
y = torch.randint(3, (96,), generator=g)


class TransferModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.relu(self.backbone(x)))


def make_net():
    return TransferModel()


def set_frozen(module, frozen):
    for p in module.parameters():
        if frozen:
            p.requires_grad = False
        else:
            p.requires_grad = True


def train(net, batches):
    set_frozen(net.backbone, True)
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch, (x, y) in enumerate(batches):
        if epoch == 1:
            set_frozen(model.module.backbone, False)
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
