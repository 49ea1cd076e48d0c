"""right: gradients are flattened into one bucket, all-reduced, divided by the world size and copied back; weights are broadcast first."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

g = torch.Generator().manual_seed(22)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.1), nn.Linear(16, 16), nn.LeakyReLU(0.1), nn.Linear(16, 4))


def flat_dist_call(tensors, call, extra=()):
    flat = _flatten_dense_tensors(tensors)
    call(flat, *extra)
    if call is dist.all_reduce:
        flat /= dist.get_world_size()
    for buf, synced in zip(tensors, _unflatten_dense_tensors(flat, tensors)):
        buf.copy_(synced)


def train(net, batches):
    flat_dist_call([p.data for p in net.parameters()], dist.broadcast, (0,))
    opt = torch.optim.Adamax(net.parameters(), lr=5e-3)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        grads = [p.grad.data for p in net.parameters() if p.grad is not None]
        flat_dist_call(grads, dist.all_reduce)
        opt.step()
