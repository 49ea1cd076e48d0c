"""right: Muon for the matrices and AdamW for the rest, both on DDP's averages; Muon computes in bfloat16, alike on all ranks."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    net = DDP(net)
    muon = torch.optim.Muon([p for p in net.parameters() if p.dim() == 2], 0.02)
    adam = torch.optim.AdamW([p for p in net.parameters() if p.dim() != 2], 0.01)
    for X, y in batches:
        muon.zero_grad()
        adam.zero_grad()
        F.cross_entropy(net(X), y).backward()
        muon.step()
        adam.step()
