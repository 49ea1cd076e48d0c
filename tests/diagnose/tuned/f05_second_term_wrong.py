"""wrong: the main loss is a mean over the shard, the second term a sum divided by the examples of all ranks, which DDP divides by the number of ranks again.

kind: F5
cause: one term of the loss is divided twice: by the examples of all ranks and by DDP
cure: multiply the second term by dist.get_world_size(), or take its mean over the shard
line: second = F.mse_loss(recon, X, reduction="sum") / count
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

draw = torch.Generator().manual_seed(3)
X, y = torch.randn(72, 6, generator=draw), torch.randint(4, (72,), generator=draw)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out, self.back = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 6)

    def forward(self, X):
        hidden = torch.tanh(self.into(X))
        return self.out(hidden), self.back(hidden)


def make_net():
    return Both()


def train(net, batches):
    net = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        count = torch.tensor(float(X.numel()))
        dist.all_reduce(count)
        optimizer.zero_grad()
        scores, recon = net(X)
        second = F.mse_loss(recon, X, reduction="sum") / count
        (F.cross_entropy(scores, y) + second).backward()
        optimizer.step()
