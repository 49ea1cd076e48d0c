"""wrong: the training step is a method of the inner net and is called on model.module, so DDP's forward never runs, its reducer is not armed and every rank steps with its own gradient.

cause: forward goes around DDP through .module, so gradients are not synchronised
cure: let forward() compute the loss and call model(batch) on the DDP wrapper
line: loss = model.module.training_step(x, t)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(30)
X = torch.randn(96, 9)
y = torch.randint(0, 3, (96,))


class LitLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, x, target):
        return F.cross_entropy(self(x), target)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def make_net():
    return LitLike()


def train(net, batches):
    model = DDP(net)
    optimizer = model.module.configure_optimizers()
    model.train()
    for x, t in batches:
        optimizer.zero_grad()
        loss = model.module.training_step(x, t)
        loss.backward()
        optimizer.step()
