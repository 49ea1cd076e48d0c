"""wrong: two heads are used in turns under plain DDP, which waits for the gradient of the idle one: nothing is exchanged, and the next forward pass raises.

kind: F2
cause: unused parameters (the idle head's) hold the exchange back
cure: DDP(net, find_unused_parameters=True)
line: net = DDP(net)
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class InTurns(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.even, self.odd = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, X, t):
        hidden = torch.tanh(self.body(X))
        return self.even(hidden) if t % 2 == 0 else self.odd(hidden)


def make_net():
    return InTurns()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for t, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(net(X, t), y).backward()
        optimizer.step()
