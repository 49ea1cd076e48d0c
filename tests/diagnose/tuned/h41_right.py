"""right: SimCLR over the whole minibatch with torch.distributed.nn's differentiable all_gather; every rank computes the same full loss and the gather's backward sums, so DDP's division leaves exactly the full gradient."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.distributed.nn.functional as dist_fn
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(42)
base = torch.randn(96, 6, generator=g)
X = torch.cat([base + 0.1 * torch.randn(96, 6, generator=g), base + 0.1 * torch.randn(96, 6, generator=g)], 1)
y = torch.arange(96)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))


def concat_all_gather(t):
    return torch.cat(dist_fn.all_gather(t), dim=0)


def nt_xent(z1, z2, tau=0.5):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    n = z1.size(0)
    sim = z @ z.t() / tau
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for x, _ in batches:
        v1, v2 = x[:, :6], x[:, 6:]
        z1, z2 = model(torch.cat([v1, v2])).chunk(2)
        loss = nt_xent(concat_all_gather(z1), concat_all_gather(z2))
        opt.zero_grad()
        loss.backward()
        opt.step()
