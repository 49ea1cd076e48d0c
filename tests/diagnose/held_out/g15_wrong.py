"""wrong: after gathering the keys of all ranks the positive of local query i is at position rank * n + i, but the labels are arange(n); on every rank but 0 the queries are pulled to the wrong keys.

cause: contrastive labels lack the rank offset after all_gather, so positives are wrong on ranks other than 0
cure: labels = torch.arange(n) + dist.get_rank() * n
line: labels = torch.arange(n, device=q.device)
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(151)
src = torch.randn(96, 8)
X = torch.stack([src, src + 0.25 * torch.randn(96, 8)], dim=1)
y = torch.zeros(96, 1)


class AllGatherGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        parts = [torch.zeros_like(t) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, t.contiguous())
        ctx.n = t.size(0)
        return torch.cat(parts, 0)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        r = dist.get_rank()
        return g[r * ctx.n:(r + 1) * ctx.n]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 10))

    def forward(self, x):
        z = F.normalize(self.f(x), dim=-1)
        return z[:, 0], z[:, 1]


def make_net():
    return Encoder()


def info_nce(q, k, t=0.2):
    n = q.size(0)
    keys = AllGatherGrad.apply(k)
    logits = q @ keys.t() / t
    labels = torch.arange(n, device=q.device)
    return F.cross_entropy(logits, labels)


def train(net, batches):
    enc = DDP(net)
    opt = torch.optim.Adam(enc.parameters(), lr=2e-3)
    for views, _ in batches:
        q, k = enc(views)
        loss = 0.5 * (info_nce(q, k) + info_nce(k, q))
        opt.zero_grad()
        loss.backward()
        opt.step()
