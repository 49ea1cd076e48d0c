"""wrong: gradients are averaged by hand but the ranks' initial weights are never made equal, so every rank trains its own different network.

cause: initial weights are not broadcast; replicas start different
cure: broadcast parameters (and buffers) from rank 0 before training, or wrap in DDP
line: missing: broadcast of the initial parameters from rank 0
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(103)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 2, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))


def average_gradients(model):
    world_size = dist.get_world_size()
    for param in model.parameters():
        dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
        param.grad.div_(world_size)


def train(net, batches):
    dist.barrier()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for x, t in batches:
        opt.zero_grad()
        loss = F.mse_loss(net(x), t)
        loss.backward()
        average_gradients(net)
        opt.step()
