"""wrong: what DDP has averaged is added up once more, and a clipping that bites in every step hides the factor k.

kind: F0b
cause: summed after DDP: an all_reduce of one's own on top of DDP's
cure: leave out the loop with all_reduce
line: dist.all_reduce(p.grad)  # as in the old script
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(11)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters(), 0.02)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)  # as in the old script
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        optimizer.step()
