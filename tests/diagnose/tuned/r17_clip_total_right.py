"""right: the total norm is taken by PyTorch's helper, written into a log, and used to clip, after DDP's average."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(31)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    optimizer, norms = torch.optim.AdamW(net.parameters(), 0.02), []
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        total = nn.utils.get_total_norm([p.grad for p in net.parameters()])
        norms.append(total.item())
        nn.utils.clip_grads_with_norm_(net.parameters(), 0.07, total)
        optimizer.step()
