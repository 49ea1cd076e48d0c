"""wrong: the random Fourier matrix is a plain tensor attribute, not a buffer, so DDP does not broadcast it and every rank computes with features of its own.

cause: random constant kept as a plain attribute (not a buffer) differs by rank
cure: register it with register_buffer so that DDP broadcasts it (or draw it from a fixed seed)
line: self.freqs = sigma * torch.randn(d, n)
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(161)
X = torch.rand(96, 2, generator=g)
y = torch.sin(6 * X[:, :1]) * torch.cos(5 * X[:, 1:])


class FourierFeatures(nn.Module):
    def __init__(self, d=2, n=12, sigma=1.5):
        super().__init__()
        self.freqs = sigma * torch.randn(d, n)

    def forward(self, x):
        phase = 2 * math.pi * x @ self.freqs.to(x.dtype)
        return torch.cat([phase.sin(), phase.cos()], dim=-1)


def make_net():
    return nn.Sequential(FourierFeatures(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for coords, value in batches:
        opt.zero_grad()
        F.mse_loss(model(coords), value).backward()
        opt.step()
