"""wrong: the learning rate is set from the rank's own loss before every step, so the ranks step with different rates and their weights drift apart.

cause: learning rate schedule follows the local loss
cure: all_reduce the loss (mean) before it sets the learning rate
line: scale = min(1.0, self.target / loss.item())
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(128)
X = torch.randn(96, 6, generator=g)
y = 2 * torch.randn(96, 1, generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


class LossAwareLR:
    """Slow down while the loss is high."""

    def __init__(self, optimizer, target):
        self.opt, self.target = optimizer, target
        self.base = [group["lr"] for group in optimizer.param_groups]

    def step(self, loss):
        scale = min(1.0, self.target / loss.item())
        for group, lr in zip(self.opt.param_groups, self.base):
            group["lr"] = lr * scale


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sched = LossAwareLR(opt, target=0.5)
    for x, t in batches:
        loss = F.mse_loss(model(x), t)
        opt.zero_grad()
        loss.backward()
        sched.step(loss)
        opt.step()
