"""wrong: the receive list of all_gather is one tensor repeated world-size times, so all entries hold the same (last) rank's gradient and its 'mean' is that rank's gradient alone.

cause: all_gather output list aliases one tensor ([tensor] * world_size)
cure: allocate a separate tensor per rank: [torch.zeros_like(p.grad) for _ in range(world)]
line: buckets = [torch.zeros_like(p.grad)] * world
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(152)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 3, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def robust_average(net):
    """all_gather rather than all_reduce, so that we can try a median later"""
    world = dist.get_world_size()
    for p in net.parameters():
        buckets = [torch.zeros_like(p.grad)] * world
        dist.all_gather(buckets, p.grad)
        p.grad.copy_(torch.stack(buckets).mean(dim=0))


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for x, t in batches:
        opt.zero_grad()
        F.mse_loss(net(x), t).backward()
        robust_average(net)
        opt.step()
