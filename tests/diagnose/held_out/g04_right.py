"""right: a tensor hook on every parameter replaces its gradient by the mean over ranks as it is computed (also for the layer that is used twice, whose hook fires once with the whole gradient), and rank 0's weights are broadcast first."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

_g = torch.Generator().manual_seed(44)
X = torch.randn(96, 12, generator=_g)
y = torch.randint(0, 4, (96,), generator=_g)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(12, 16)
        self.mid = nn.Linear(16, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        h = F.elu(self.inp(x))
        h = h + F.elu(self.mid(h))
        h = h + F.elu(self.mid(h))  # same weights again
        return self.out(h)


def make_net():
    return Shared()


class HookedDataParallel:
    """Poor man's DDP."""

    def __init__(self, module):
        self.module = module
        self.n = dist.get_world_size()
        for p in module.parameters():
            dist.broadcast(p.data, 0)
            if p.requires_grad:
                p.register_hook(self._mean)

    def _mean(self, grad):
        grad = grad.clone().contiguous()
        dist.all_reduce(grad)
        return grad / self.n

    def __call__(self, *args):
        return self.module(*args)


def train(net, batches):
    model = HookedDataParallel(net)
    opt = torch.optim.RMSprop(net.parameters(), lr=2e-3, momentum=0.5)
    for xb, yb in batches:
        opt.zero_grad()
        F.cross_entropy(model(xb), yb).backward()
        opt.step()
