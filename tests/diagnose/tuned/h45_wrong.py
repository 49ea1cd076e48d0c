"""wrong: the learned loss weights (log variances) live in the criterion, outside the DDP wrapper, so each rank trains its own and the losses are weighed differently.

cause: trainable parameters of the criterion are outside DDP and never synchronised
cure: put the criterion inside the wrapped module, or wrap it in a DDP of its own
line: criterion = UncertaintyLoss().to(next(net.parameters()).dtype)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(145)
X = torch.randn(96, 6, generator=g)
y = torch.randn(96, 2, generator=g) * torch.tensor([0.5, 3.0])


class UncertaintyLoss(nn.Module):
    def __init__(self, n=2):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(n))

    def forward(self, pred, target):
        per_task = (pred - target).pow(2).mean(0)
        return (torch.exp(-self.log_vars) * per_task + self.log_vars).sum()


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def train(net, batches):
    model = DDP(net)
    criterion = UncertaintyLoss().to(next(net.parameters()).dtype)
    opt = torch.optim.SGD([
        {"params": model.parameters()},
        {"params": criterion.parameters(), "lr": 0.1},
    ], lr=0.05)
    for x, t in batches:
        opt.zero_grad()
        criterion(model(x), t).backward()
        opt.step()
