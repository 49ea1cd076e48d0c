"""right: parameter groups with no weight decay on biases and norms, a smaller rate for the encoder, and OneCycleLR by step; none of it depends on the rank."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(37)
X = torch.randn(96, 9, generator=g)
y = torch.randint(3, (96,), generator=g)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(9, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(F.gelu(self.encoder(x)))


def make_net():
    return Model()


def param_groups(model, lr, wd):
    decay_head, decay_enc, plain = [], [], []
    for name, p in model.named_parameters():
        if p.ndim < 2:
            plain.append(p)
        elif ".head." in name or name.startswith("head."):
            decay_head.append(p)
        else:
            decay_enc.append(p)
    return [
        {"params": decay_head, "lr": lr, "weight_decay": wd},
        {"params": decay_enc, "lr": lr * 0.1, "weight_decay": wd},
        {"params": plain, "lr": lr, "weight_decay": 0.0},
    ]


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(param_groups(model, 1e-2, 0.05))
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=[1e-2, 1e-3, 1e-2], total_steps=len(batches) + 1)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
        sched.step()
