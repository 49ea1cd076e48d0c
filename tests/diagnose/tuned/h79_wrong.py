"""wrong: after moving to DDP the old hand-written division by the world size was left in, so averaged gradients are divided by k once more.

cause: gradients divided by the world size by hand although DDP has averaged them
cure: delete the loop that divides the gradients
line: p.grad.div_(dist.get_world_size())
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(179)
X = torch.randn(72, 6, 5, generator=g)
y = torch.randint(4, (72,), generator=g)


class PoolAttention(nn.Module):
    def __init__(self, d=5, h=10):
        super().__init__()
        self.q = nn.Parameter(0.1 * torch.randn(1, 1, h))
        self.kv = nn.Linear(d, 2 * h)
        self.out = nn.Linear(h, 4)

    def forward(self, x):
        k, v = self.kv(x).chunk(2, -1)
        w = (self.q * k).sum(-1, keepdim=True).softmax(1)
        return self.out((w * v).sum(1))


def make_net():
    return PoolAttention()


def finish_gradients(model, clip=1.0):
    for p in model.parameters():
        p.grad.div_(dist.get_world_size())
    nn.utils.clip_grad_norm_(model.parameters(), clip)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for seq, lab in batches:
        opt.zero_grad()
        F.cross_entropy(model(seq), lab).backward()
        finish_gradients(model)
        opt.step()
