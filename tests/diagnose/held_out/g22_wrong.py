"""wrong: a Polyak step size is formed from the rank's own loss and the averaged gradient, so each rank takes a step of another length and the replicas drift apart.

cause: step size depends on the local loss, which differs between ranks
cure: average the loss over ranks (all_reduce / world_size) before passing it to opt.step
line: opt.step(loss.item())
"""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import Optimizer

torch.manual_seed(220)
X = torch.randn(96, 6)
y = torch.randint(0, 3, (96,))


class PolyakSGD(Optimizer):
    """lr = (f(x) - f*) / ||g||^2, see Loizou et al. (SPS)."""

    def __init__(self, params, f_star=0.0, max_lr=1.0):
        super().__init__(params, dict(f_star=f_star, max_lr=max_lr))

    @torch.no_grad()
    def step(self, loss_value):
        sq = 0.0
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    sq += p.grad.pow(2).sum().item()
        for group in self.param_groups:
            lr = min(group["max_lr"], 0.1 * (loss_value - group["f_star"]) / (sq + 1e-12))
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-lr)


def make_net():
    return nn.Sequential(nn.Linear(6, 14), nn.ReLU(), nn.Linear(14, 3))


def train(net, batches):
    model = DDP(net)
    opt = PolyakSGD(model.parameters(), max_lr=50.0)
    ce = nn.CrossEntropyLoss()
    for xb, yb in batches:
        opt.zero_grad()
        loss = ce(model(xb), yb)
        loss.backward()
        opt.step(loss.item())
