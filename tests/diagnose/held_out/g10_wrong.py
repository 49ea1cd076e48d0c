"""wrong: gradual unfreezing turns on requires_grad of the backbone after the net was wrapped; DDP only hooks parameters that required gradients at construction, so the backbone's gradients stay local from then on.

cause: backbone is frozen when DDP is built and unfrozen later, so DDP does not synchronise its gradients
cure: wrap in DDP with all parameters trainable (or build DDP again after unfreezing)
line: p.requires_grad = True
"""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(100)
X = torch.randn(96, 8)
y = torch.stack([X.norm(dim=1), X.mean(1)], dim=1)

UNFREEZE_AT = 1


class FineTune(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 24), nn.SiLU(), nn.Linear(24, 16), nn.SiLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


def make_net():
    net = FineTune()
    for p in net.backbone.parameters():
        p.requires_grad = False
    return net


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(
        [
            {"params": net.backbone.parameters(), "lr": 0.01},
            {"params": net.head.parameters(), "lr": 0.1},
        ],
        lr=0.1,
    )
    for it, (xb, yb) in enumerate(batches):
        if it == UNFREEZE_AT:
            for p in model.module.backbone.parameters():
                p.requires_grad = True
        opt.zero_grad()
        nn.functional.mse_loss(model(xb), yb).backward()
        opt.step()
