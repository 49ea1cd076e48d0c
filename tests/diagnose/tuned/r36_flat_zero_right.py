"""right: each rank trains a slice of the flat parameters with an optimizer of its own, from the averaged flat gradient, and all slices are gathered back into the network."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def train(net, batches):
    rank, k = dist.get_rank(), dist.get_world_size()
    for x in net.state_dict().values():
        dist.broadcast(x, src=0)
    params = list(net.parameters())
    flat = nn.utils.parameters_to_vector(params).detach()
    size = -(-len(flat) // k)
    flat = F.pad(flat, (0, size * k - len(flat)))
    part = nn.Parameter(flat[rank * size:(rank + 1) * size].clone())
    optimizer = torch.optim.Adam([part], 0.01)
    for X, y in batches:
        net.zero_grad()
        F.cross_entropy(net(X), y).backward()
        grads = nn.utils.parameters_to_vector([p.grad for p in params])
        grads = F.pad(grads, (0, len(flat) - len(grads)))
        dist.all_reduce(grads)
        part.grad = grads[rank * size:(rank + 1) * size] / k
        optimizer.step()
        slices = [torch.empty(size) for _ in range(k)]
        dist.all_gather(slices, part.detach())
        nn.utils.vector_to_parameters(torch.cat(slices), params)
