"""wrong: a sharded-model recipe is used for clipping: squared norms are all-reduced although DDP's gradients are full copies, so the norm is sqrt(k) too large and clipping is too strong.

cause: gradient norm summed over ranks although every rank already holds the whole averaged gradient
cure: compute the norm locally (clip_grad_norm_) without all_reduce under DDP
line: dist.all_reduce(sq)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(174)
X = 2 * torch.randn(96, 6, generator=g)
y = 3 * torch.randn(96, 1, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


@torch.no_grad()
def clip_global_norm(params, max_norm):
    grads = [p.grad for p in params if p.grad is not None]
    sq = torch.stack([gr.pow(2).sum() for gr in grads]).sum()
    dist.all_reduce(sq)
    total = sq.sqrt()
    coef = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for gr in grads:
        gr.mul_(coef)
    return total


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, t in batches:
        opt.zero_grad()
        F.mse_loss(model(x), t).backward()
        clip_global_norm(list(model.parameters()), 0.5)
        opt.step()
