"""wrong: with hand-written averaging the local gradient is clipped by norm first and averaged second, so the clipping factor differs by rank.

cause: clip_grad_norm_ is applied before the gradients are averaged
cure: swap the two lines: average the gradients first, then clip
line: total_norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.2)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(105)
X = torch.randn(96, 8, generator=g)
y = torch.randint(3, (96,), generator=g)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 20)
        self.b = nn.Linear(20, 3)

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))


def make_net():
    return Net()


def allreduce_mean_(tensors):
    flat = torch.cat([t.view(-1) for t in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    i = 0
    for t in tensors:
        t.copy_(flat[i:i + t.numel()].view_as(t))
        i += t.numel()


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(net.parameters(), lr=0.5)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        total_norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.2)
        allreduce_mean_([p.grad for p in net.parameters()])
        opt.step()
