"""wrong: a learned prompt is added to the network after the wrapping: DDP does not know it, and each rank trains its own.

kind: new
cause: a parameter (prompt) added after the wrapping is not exchanged
cure: add it before DDP(net)
line: net.module.prompt = nn.Parameter(torch.zeros(6))
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Prompted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.register_parameter("prompt", None)

    def forward(self, X):
        return self.body(X if self.prompt is None else X + self.prompt)


def make_net():
    return Prompted()


def train(net, batches):
    net = DDP(net)
    net.module.prompt = nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.SGD(net.parameters(), 0.2)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
