"""wrong: one block is used twice under re-entrant checkpointing, so its parameters become ready twice in one backward and DDP raises 'marked as ready twice'.

cause: shared layer in two re-entrant checkpoints makes DDP see its gradients twice
cure: use checkpoint(..., use_reentrant=False) (or static_graph=True)
line: x = checkpoint(self.block, x, use_reentrant=True)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

g = torch.Generator().manual_seed(175)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class SharedDepth(nn.Module):
    def __init__(self, d=12, repeats=2):
        super().__init__()
        self.inp = nn.Linear(6, d)
        self.block = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU())
        self.out = nn.Linear(d, 4)
        self.repeats = repeats

    def forward(self, x):
        x = self.inp(x)
        for _ in range(self.repeats):
            x = checkpoint(self.block, x, use_reentrant=True)
        return self.out(x)


def make_net():
    return SharedDepth()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
