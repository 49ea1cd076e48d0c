"""right: SimCLR where every rank computes the full NT-Xent loss on gathered projections; the gather's backward sums the gradient over ranks (world size times the local part), which DDP's averaging turns into the exact gradient."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(20)
base = torch.randn(96, 1, 10)
X = base + 0.2 * torch.randn(96, 2, 10)   # two views, made in advance
y = torch.zeros(96)


class GatherLayer(torch.autograd.Function):
    """all_gather that keeps the graph (as in the SimCLR / VICReg repositories)."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        all_grads = torch.stack(grads)
        dist.all_reduce(all_grads)
        return all_grads[dist.get_rank()]


def nt_xent(z1, z2, tau=0.5):
    z1 = torch.cat(GatherLayer.apply(z1))
    z2 = torch.cat(GatherLayer.apply(z2))
    n = z1.size(0)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.t() / tau
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), float("-inf"))
    pos = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(sim, pos)


def make_net():
    encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16))
    projector = nn.Sequential(nn.ReLU(), nn.Linear(16, 8))
    return nn.Sequential(encoder, projector)


def train(net, batches):
    net = DDP(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9, weight_decay=1e-4)
    for views, _ in batches:
        z = net(views.flatten(0, 1)).unflatten(0, (-1, 2))
        loss = nt_xent(z[:, 0], z[:, 1])
        opt.zero_grad()
        loss.backward()
        opt.step()
