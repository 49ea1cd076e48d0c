"""wrong: the weight prior of the MAP objective is divided by the number of examples in the batch at hand; on a rank that is the shard, so the prior counts world-size times as much as on the single device.

cause: prior (KL) term is divided by the local batch size instead of the global one
cure: divide by xb.size(0) * dist.get_world_size() (or by the fixed data-set size)
line: return nll.mean() + prior / xb.size(0)
"""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(410)
X = torch.randn(96, 4)
y = torch.poisson(torch.exp(0.5 * X[:, :1]))


class PoissonMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(4, 12)
        self.l2 = nn.Linear(12, 1)

    def forward(self, x):
        return self.l2(torch.tanh(self.l1(x)))


def make_net():
    return PoissonMLP()


def log_prior(module, sigma=0.5):
    """isotropic Gaussian prior on all weights"""
    total = 0.0
    for p in module.parameters():
        total = total - (p ** 2).sum() / (2 * sigma ** 2)
    return total


def map_objective(model, xb, yb):
    nll = nn.functional.poisson_nll_loss(model(xb), yb, log_input=True, reduction="none")
    prior = -log_prior(model.module)
    return nll.mean() + prior / xb.size(0)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for xb, yb in batches:
        opt.zero_grad()
        map_objective(model, xb, yb).backward()
        opt.step()
