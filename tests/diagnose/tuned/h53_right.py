"""right: domain-adversarial training with a gradient reversal layer inside one wrapped net; every source/target term is a sum over the shard divided by the all-reduced count times the world size."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(54)
X = torch.randn(96, 6, generator=g)
y = torch.stack([torch.randint(3, (96,), generator=g), (torch.arange(96) % 5 < 2).long()], 1)


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lamb):
        ctx.lamb = lamb
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.lamb * grad, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.label = nn.Linear(16, 3)
        self.domain = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x, lamb):
        h = self.features(x)
        return self.label(h), self.domain(GradReverse.apply(h, lamb))


def make_net():
    return DANN()


def global_mean(per_example, mask):
    w = mask.to(per_example.dtype)
    n = w.sum()
    dist.all_reduce(n)
    return (per_example * w).sum() * dist.get_world_size() / n.clamp(min=1)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for i, (x, t) in enumerate(batches):
        labels, domain = t.unbind(1)
        cls, dom = model(x, 0.1 * (i + 1))
        loss = global_mean(F.cross_entropy(cls, labels, reduction="none"), domain == 0) + F.cross_entropy(dom, domain)
        opt.zero_grad()
        loss.backward()
        opt.step()
