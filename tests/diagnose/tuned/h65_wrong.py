"""wrong: the gradients are averaged before loss.backward() fills them (they are zero then), so the step uses local gradients.

cause: gradient averaging is called before backward
cure: call sync() after loss.backward()
line: sync(net)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(165)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 2, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 2))


@torch.no_grad()
def sync(net):
    for p in net.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad.mul_(1 / dist.get_world_size())


def train(net, batches):
    for t in net.state_dict().values():
        dist.broadcast(t, 0)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for x, t in batches:
        opt.zero_grad(set_to_none=False)
        loss = F.l1_loss(net(x), t)
        sync(net)
        loss.backward()
        opt.step()
