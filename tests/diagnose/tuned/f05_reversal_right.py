"""right: a hook turns the gradient round that a second head sends into the body, by a number that does not depend on the ranks."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Adversary(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.domain = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, X):
        hidden = torch.tanh(self.body(X))
        turned = hidden.view_as(hidden)
        if turned.requires_grad:
            turned.register_hook(lambda grad: -0.3 * grad)
        return self.head(hidden), self.domain(turned)[:, 0]


def make_net():
    return Adversary()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        scores, domain = net(X)
        (F.cross_entropy(scores, y) + F.binary_cross_entropy_with_logits(domain, (X[:, 5] > 0).to(X.dtype))).backward()
        optimizer.step()
