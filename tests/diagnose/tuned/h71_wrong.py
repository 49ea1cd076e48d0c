"""wrong: the summed gradients are divided by a constant 8 (the cluster that the script was written for), not by the actual number of ranks.

cause: hard-coded world size as divisor
cure: divide by dist.get_world_size()
line: p.grad.mul_(1.0 / NUM_GPUS)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

NUM_GPUS = 8

g = torch.Generator().manual_seed(171)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def allreduce_gradients(model):
    if dist.get_world_size() == 1:
        return
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad.mul_(1.0 / NUM_GPUS)


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        allreduce_gradients(net)
        opt.step()
