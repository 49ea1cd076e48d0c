"""wrong: the averaging comes after optimizer.step(), so the step takes local gradients and the averaged ones are cleared unused.

cause: gradients are averaged after the optimizer step instead of before it
cure: move average_gradients(net) between backward() and opt.step()
line: average_gradients(net)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(164)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def average_gradients(net):
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= dist.get_world_size()


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        average_gradients(net)
        opt.zero_grad()
