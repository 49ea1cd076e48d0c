"""wrong: the loss sums over the batch, and DDP's mean over ranks then gives 1/k of the single device's summed gradient.

cause: sum-reduced loss under DDP, which averages over ranks
cure: use a mean loss (and set the rate to match), or multiply the summed loss by the world size
line: bce = nn.BCEWithLogitsLoss(reduction="sum")
"""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(111)
X = torch.rand(96, 10, generator=g)
y = torch.zeros(96, dtype=torch.long)


class AE(nn.Module):
    def __init__(self, d=10, z=4):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, z))
        self.decode = nn.Sequential(nn.Linear(z, 8), nn.ReLU(), nn.Linear(8, d))

    def forward(self, x):
        return self.decode(self.encode(x))


def make_net():
    return AE()


def train(net, batches):
    model = DDP(net)
    bce = nn.BCEWithLogitsLoss(reduction="sum")
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, _ in batches:
        opt.zero_grad()
        loss = bce(model(x), x)
        loss.backward()
        opt.step()
