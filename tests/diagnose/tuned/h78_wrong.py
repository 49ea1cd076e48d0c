"""wrong: the loss is a root of the shard's mean squared error; a mean of roots over ranks is not the root of the minibatch's mean, so the gradient differs from the single device's.

cause: loss is not a mean over examples (root of a local mean), so averaging over shards is not exact
cure: all_reduce the mean squared error with a differentiable all_reduce before the root, or train on MSE
line: return torch.sqrt(F.mse_loss(pred, target) + 1e-8)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(178)
X = torch.randn(96, 5, generator=g)
y = X.sum(1, keepdim=True) + torch.randn(96, 1, generator=g)
y[torch.arange(96) % 6 == 0] *= 4.0


class RMSELoss(nn.Module):
    def forward(self, pred, target):
        return torch.sqrt(F.mse_loss(pred, target) + 1e-8)


def make_net():
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))


def train(net, batches):
    model = DDP(net)
    loss_fn = RMSELoss()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, t in batches:
        opt.zero_grad()
        loss_fn(model(x), t).backward()
        opt.step()
