"""wrong: every rank receives rank 0's batch by broadcast, so all ranks train on rank 0's shard and the rest of the minibatch is lost.

cause: rank 0's data is broadcast over the other ranks' shards
cure: remove the broadcast of inputs and labels; each rank keeps its own shard
line: dist.broadcast(t, src=0)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(130)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(F.silu(self.a(x)))


def make_net():
    return MLP()


def get_batch(batch):
    """Make sure that all ranks agree on the data."""
    out = []
    for t in batch:
        t = t.clone().contiguous()
        dist.broadcast(t, src=0)
        out.append(t)
    return out


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        x, y = get_batch(batch)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
