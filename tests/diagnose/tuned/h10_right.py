"""right: LoRA adapters are injected and the base weights frozen before DDP is built, so the adapters are broadcast and reduced."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(10)
X = torch.randn(96, 8, generator=g)
y = torch.randn(96, 2, generator=g)


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r=2, alpha=4):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.A = nn.Parameter(0.3 * torch.randn(r, base.in_features, dtype=base.weight.dtype))
        self.B = nn.Parameter(torch.zeros(base.out_features, r, dtype=base.weight.dtype))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.A), self.B) * self.scale


def inject_lora(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRALinear(child))
        else:
            inject_lora(child)
    return module


def make_net():
    base = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    return inject_lora(base)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    for x, t in batches:
        opt.zero_grad()
        F.mse_loss(model(x), t).backward()
        opt.step()
