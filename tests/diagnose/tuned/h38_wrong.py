"""wrong: inside the accumulation loop the accumulated gradient is all-reduced (SUM) after every micro-batch and divided once at the end, so early micro-batches are summed again and again.

cause: accumulated gradients are all-reduced once per micro-batch instead of once per step
cure: move the all_reduce out of the micro-batch loop
line: dist.all_reduce(p.grad)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(138)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)

N_MICRO = 2


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def micro_step(net, x, y, total):
    loss = F.cross_entropy(net(x), y, reduction="sum") / total
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    return loss.item()


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for x, y in batches:
        opt.zero_grad()
        for mx, my in zip(x.chunk(N_MICRO), y.chunk(N_MICRO)):
            micro_step(net, mx, my, len(x))
        for p in net.parameters():
            p.grad /= dist.get_world_size()
        opt.step()
