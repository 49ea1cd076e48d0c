"""wrong: the weights are tied after the wrapping, so that DDP waits for the gradient of a head's weight that is no longer in the network, and sends nothing.

kind: F2
cause: a parameter that DDP knows (the head's old weight) is no longer used and holds the exchange back
cure: tie the weights before DDP(net)
line: net.module.head.weight = net.module.words.weight
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
text = torch.randint(12, (72, 7), generator=draw)
X, y = text[:, :-1], text[:, 1:]


class Speaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12, bias=False)

    def forward(self, X):
        return self.head(torch.tanh(self.mix(self.words(X)))).transpose(1, 2)


def make_net():
    return Speaks()


def train(net, batches):
    net = DDP(net)
    net.module.head.weight = net.module.words.weight
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
