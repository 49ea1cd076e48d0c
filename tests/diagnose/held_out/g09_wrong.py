"""wrong: LoRA matrices are injected into the net after DDP has been built, so DDP has no hooks on them (find_unused_parameters hides the frozen ones) and they are trained on local gradients only.

cause: parameters are added after wrapping in DDP, so their gradients are not synchronised and their initial values are not broadcast
cure: inject the LoRA layers before calling DDP(net)
line: inject_lora(model.module)
"""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(90)
X = torch.randn(96, 12)
y = torch.randint(0, 3, (96,))


class LoRALinear(nn.Module):
    def __init__(self, base, r=2, alpha=4):
        super().__init__()
        self.base = base
        w = base.weight
        self.A = nn.Parameter(torch.randn(r, w.size(1), dtype=w.dtype) * 0.3)
        self.B = nn.Parameter(torch.full((w.size(0), r), 0.05, dtype=w.dtype))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + (x @ self.A.t() @ self.B.t()) * self.scale


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.fc2 = nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


def make_net():
    return Classifier()


def inject_lora(net):
    for name in ("fc1", "fc2"):
        layer = getattr(net, name)
        layer.requires_grad_(False)
        setattr(net, name, LoRALinear(layer))


def train(net, batches):
    model = DDP(net, find_unused_parameters=True)
    inject_lora(model.module)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    for xb, yb in batches:
        opt.zero_grad()
        nn.functional.cross_entropy(model(xb), yb).backward()
        opt.step()
