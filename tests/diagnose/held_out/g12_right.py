"""right: residual blocks under non-reentrant activation checkpointing and layer-wise learning-rate decay by parameter groups; recomputation changes no gradient and DDP averages as usual."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

torch.manual_seed(12)
X = torch.randn(96, 16)
y = torch.randint(0, 6, (96,))
DEPTH = 4


class Res(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.f(x)


class Deep(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.stem = nn.Linear(16, d)
        self.blocks = nn.ModuleList(Res(d) for _ in range(DEPTH))
        self.head = nn.Linear(d, 6)

    def forward(self, x):
        h = self.stem(x)
        for blk in self.blocks:
            if self.training:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h)
        return self.head(h)


def make_net():
    return Deep()


def layerwise_groups(net, lr, decay):
    groups = [{"params": net.head.parameters(), "lr": lr}]
    for i, blk in enumerate(reversed(net.blocks)):
        groups.append({"params": blk.parameters(), "lr": lr * decay ** (i + 1)})
    groups.append({"params": net.stem.parameters(), "lr": lr * decay ** (DEPTH + 1)})
    return groups


def train(net, batches):
    wrapped = DDP(net)
    opt = torch.optim.RAdam(layerwise_groups(wrapped.module, 1e-2, 0.65), lr=1e-2)
    for xb, yb in batches:
        opt.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(wrapped(xb), yb).backward()
        opt.step()
