"""right: batch normalisation written by hand with statistics of the whole minibatch: sums are all-reduced by the differentiable all_reduce of torch.distributed.nn, whose backward sums the gradients over ranks."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_fn
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(16)
X = torch.randn(96, 8) * torch.linspace(0.5, 3, 8) + 1
y = torch.randint(0, 3, (96,))


class GlobalBatchNorm1d(nn.Module):
    def __init__(self, dim, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gain = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))
        self.register_buffer("run_mean", torch.zeros(dim))
        self.register_buffer("run_var", torch.ones(dim))

    def forward(self, x):
        if self.training:
            n = x.size(0) * dist.get_world_size()
            mean = dist_fn.all_reduce(x.sum(0)) / n
            var = dist_fn.all_reduce((x - mean).pow(2).sum(0)) / n
            with torch.no_grad():
                self.run_mean.lerp_(mean, self.momentum)
                self.run_var.lerp_(var * n / (n - 1), self.momentum)
        else:
            mean, var = self.run_mean, self.run_var
        return (x - mean) * torch.rsqrt(var + self.eps) * self.gain + self.shift


def make_net():
    return nn.Sequential(
        nn.Linear(8, 16, bias=False), GlobalBatchNorm1d(16), nn.ReLU(),
        nn.Linear(16, 16, bias=False), GlobalBatchNorm1d(16), nn.ReLU(),
        nn.Linear(16, 3),
    )


def train(net, batches):
    ddp = DDP(net)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for xb, yb in batches:
        opt.zero_grad()
        nn.functional.cross_entropy(ddp(xb), yb).backward()
        opt.step()
