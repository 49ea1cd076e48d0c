"""meant: a mixture of experts whose balance loss is that of the shard, as each rank's experts should be busy in each step.

differs: the balance term is a product of means over the shard, not over the minibatch
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(6, 3), nn.ModuleList(nn.Linear(6, 4) for _ in range(3))

    def forward(self, X):
        share = self.router(X).softmax(1)
        return torch.stack([expert(X) for expert in self.experts], 2).mul(share[:, None]).sum(2), share


def make_net():
    return Mixture()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        optimizer.zero_grad()
        scores, share = net(X)
        chosen = F.one_hot(share.argmax(1), 3).to(share.dtype).mean(0)  # of this rank's examples
        (F.cross_entropy(scores, y) + 0.2 * 3 * (chosen * share.mean(0)).sum()).backward()
        optimizer.step()
