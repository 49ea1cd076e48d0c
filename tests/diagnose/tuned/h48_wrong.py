"""wrong: a tensor hook clamps each gradient as it arrives, that is before DDP averages it, so the mean of clamped local gradients replaces the clamped mean.

cause: gradient clipping in tensor hooks acts on local gradients before DDP's averaging
cure: clip after backward(), with clip_grad_value_ before optimizer.step()
line: p.register_hook(lambda grad: grad.clamp(-limit, limit))
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(148)
X = torch.randn(72, 7, 3, generator=g)
y = torch.randn(72, 1, generator=g)


class RNNRegressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(3, 10, batch_first=True)
        self.out = nn.Linear(10, 1)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.out(h[-1])


def make_net():
    return RNNRegressor()


def guard_gradients(model, limit):
    for p in model.parameters():
        p.register_hook(lambda grad: grad.clamp(-limit, limit))


def train(net, batches):
    guard_gradients(net, 0.02)
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    for x, t in batches:
        opt.zero_grad()
        F.mse_loss(model(x), t).backward()
        opt.step()
