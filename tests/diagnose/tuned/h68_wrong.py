"""wrong: each rank steps Adam on its own gradient and the weights are averaged afterwards; Adam is not linear and its moments stay local, so this is not the single-device training.

cause: weights are averaged after local Adam steps instead of the gradients before them
cure: average the gradients before opt.step() (or wrap in DDP)
line: dist.all_reduce(p.data)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

g = torch.Generator().manual_seed(168)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


@torch.no_grad()
def average_model(net):
    for p in net.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def train(net, batches):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        average_model(net)
