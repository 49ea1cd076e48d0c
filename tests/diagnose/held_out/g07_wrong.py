"""wrong: the initial weights are packed in one vector that is broadcast from rank 0 but never written back into the parameters, so every rank trains a differently initialised replica.

cause: replicas start from different weights, because the broadcast vector is a copy that is not put back
cure: call vector_to_parameters(vec, net.parameters()) after the broadcast
line: missing: vector_to_parameters(vec, net.parameters()) after dist.broadcast(vec, src=0)
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector

torch.manual_seed(70)
X = torch.randn(96, 5)
y = (X @ torch.randn(5, 2)).relu()


def make_net():
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))


def sync_initial_weights(net):
    with torch.no_grad():
        vec = parameters_to_vector(net.parameters())
        dist.broadcast(vec, src=0)
    return vec.numel()


def all_reduce_mean_grads(net):
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    i = 0
    for p in net.parameters():
        p.grad.copy_(flat[i:i + p.numel()].view_as(p.grad))
        i += p.numel()


def train(net, batches):
    n = sync_initial_weights(net)
    if dist.get_rank() == 0:
        print("synchronised", n, "weights")
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for xb, yb in batches:
        opt.zero_grad()
        nn.functional.mse_loss(net(xb), yb).backward()
        all_reduce_mean_grads(net)
        opt.step()
