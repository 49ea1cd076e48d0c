"""wrong: the data term is a local sum over the global count and gradients are summed, which is right, but the L2 penalty is added in full on every rank and so counts k times.

cause: the regularisation term is added on every rank and then summed over the ranks
cure: divide the penalty by the world size (or add it once, after the reduction)
line: loss = data + L2 * penalty
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

L2 = 0.05
g = torch.Generator().manual_seed(136)
X = torch.randn(96, 8, generator=g)
y = torch.randn(96, 1, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 1))


def global_count(x):
    n = x.new_tensor([float(len(x))])
    dist.all_reduce(n)
    return n.item()


def train(net, batches):
    params = list(net.parameters())
    for p in params:
        dist.broadcast(p.data, src=0)
    opt = torch.optim.Adam(params, lr=1e-2)
    for x, t in batches:
        data = F.mse_loss(net(x), t, reduction="sum") / global_count(x)
        penalty = sum(p.pow(2).sum() for p in params if p.dim() > 1)
        loss = data + L2 * penalty
        opt.zero_grad()
        loss.backward()
        for p in params:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        opt.step()
