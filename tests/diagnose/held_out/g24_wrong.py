"""wrong: the hand-written synchronisation broadcasts parameters only; the random Fourier matrix is a buffer that is drawn anew on every rank, so the ranks train on different features.

cause: random buffer is not broadcast, so it differs between ranks
cure: broadcast net.buffers() too (or state_dict values)
line: for p in module.parameters():
"""
import math

import torch
import torch.distributed as dist
import torch.nn as nn

torch.manual_seed(240)
X = torch.rand(96, 2)
y = torch.sin(6 * X[:, :1]) * torch.cos(4 * X[:, 1:])


class FourierField(nn.Module):
    def __init__(self, n=12, sigma=2.0):
        super().__init__()
        self.register_buffer("B", torch.randn(2, n) * sigma)
        self.net = nn.Sequential(nn.Linear(2 * n, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, xy):
        proj = 2 * math.pi * xy @ self.B
        return self.net(torch.cat([proj.sin(), proj.cos()], -1))


def make_net():
    return FourierField()


class SimpleDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for p in module.parameters():
            dist.broadcast(p.data, src=0)

    def forward(self, *a):
        return self.module(*a)

    def sync_grads(self):
        w = dist.get_world_size()
        for q in self.module.parameters():
            dist.all_reduce(q.grad)
            q.grad.mul_(1.0 / w)


def train(net, batches):
    dp = SimpleDP(net)
    opt = torch.optim.Adam(dp.parameters(), lr=2e-3)
    for xy, val in batches:
        opt.zero_grad()
        nn.functional.mse_loss(dp(xy), val).backward()
        dp.sync_grads()
        opt.step()
