"""wrong: features are gathered with dist.all_gather, which carries no gradient; the other ranks' rows act as constants and the part of the gradient through them is lost.

cause: all_gather is not differentiable, so gradients through gathered features are dropped
cure: gather with a differentiable all_gather (torch.distributed.nn.functional.all_gather)
line: dist.all_gather(out, t.detach().contiguous())
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(137)
X = torch.randn(96, 10, generator=g)
y = torch.zeros(96, dtype=torch.long)


class Towers(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, d))
        self.doc = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, d))

    def forward(self, x):
        q, d = self.query(x[:, :5]), self.doc(x[:, 5:])
        return F.normalize(q, dim=-1), F.normalize(d, dim=-1)


def make_net():
    return Towers()


def gather(t):
    out = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(out, t.detach().contiguous())
    out[dist.get_rank()] = t  # keep the local gradient
    return torch.cat(out)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for x, _ in batches:
        q, d = model(x)
        docs = gather(d)
        labels = torch.arange(len(q)) + len(q) * dist.get_rank()
        loss = F.cross_entropy(q @ docs.t() / 0.2, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
