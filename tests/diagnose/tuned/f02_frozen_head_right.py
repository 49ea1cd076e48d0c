"""right: the head that no loss uses is frozen before the wrapping, so that DDP does not wait for it."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Spare(nn.Module):
    """With a second head that this training has no labels for."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 3)

    def forward(self, X):
        hidden = torch.tanh(self.body(X))
        return self.head(hidden), self.other(hidden)


def make_net():
    return Spare()


def train(net, batches):
    net.other.requires_grad_(False)
    net = DDP(net)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1, weight_decay=0.01)
    for X, y in batches:
        optimizer.zero_grad()
        scores, _ = net(X)
        F.cross_entropy(scores, y).backward()
        optimizer.step()
