"""right: a GroupNorm ConvNet with linear warm-up by LambdaLR; GroupNorm works within an example and the schedule depends on the step only."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(19)
X = torch.randn(96, 1, 7, 7, generator=g)
y = torch.rand(96, 1, 7, 7, generator=g)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.GroupNorm(4, 8), nn.SiLU())
        self.dec = nn.Sequential(nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 1, 1))

    def forward(self, x):
        return self.dec(self.enc(x))


def make_net():
    return AutoEncoder()


def warmup(step, steps=10):
    return min(1.0, (step + 1) / steps)


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.NAdam(model.parameters(), lr=2e-2)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, warmup)
    criterion = nn.BCEWithLogitsLoss()
    for noisy, clean in batches:
        opt.zero_grad()
        criterion(model(noisy), clean).backward()
        opt.step()
        sched.step()
