"""wrong: the gradients are all-reduced with async_op=True and nobody waits for the work before dividing and stepping, so the step may use unreduced or half-reduced values.

cause: asynchronous all_reduce never waited for
cure: keep the handles and call wait() on each before using the gradients
line: dist.all_reduce(p.grad, async_op=True)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(132)
X = torch.randn(96, 20, generator=g)
y = torch.randint(10, (96,), generator=g)


def make_net():
    layers = [nn.Linear(20, 64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def sync_gradients(net):
    for p in net.parameters():
        dist.all_reduce(p.grad, async_op=True)


def train(net, batches):
    world = dist.get_world_size()
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        sync_gradients(net)
        for p in net.parameters():
            p.grad /= world
        opt.step()
