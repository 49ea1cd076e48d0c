"""right: forward and loss under CPU autocast(bfloat16) through the wrapper, backward outside it; at most bfloat16 rounding differs, which is the intended cost of mixed precision."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(27)
X = torch.randn(96, 16, generator=g)
y = torch.randint(3, (96,), generator=g)


class GatedMLP(nn.Module):
    def __init__(self, d=16, h=32, classes=3):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(d, h), nn.Linear(d, h), nn.Linear(h, d)
        self.cls = nn.Linear(d, classes)

    def forward(self, x):
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return self.cls(x)


def make_net():
    return GatedMLP()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in batches:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
