"""wrong: a class token was left in the network when the pooling was changed to a mean: a single parameter that nothing uses keeps DDP from sending all the others.

kind: F2
cause: an unused parameter (token) holds the exchange back
cure: remove the token, freeze it before the wrapping, or find_unused_parameters=True
line: self.token = nn.Parameter(torch.zeros(8))
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(2, 8), nn.Linear(8, 4)
        self.token = nn.Parameter(torch.zeros(8))

    def forward(self, X):
        return self.out(torch.tanh(self.into(X.view(len(X), 3, 2))).mean(1))  # in place of the token's row


def make_net():
    return Pooled()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
