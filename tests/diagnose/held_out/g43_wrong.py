"""wrong: the parameters are split among ranks for a sharded optimizer with an integer division; the remainder at the end of the list belongs to no rank and is never updated when there is more than one.

cause: remainder of the parameter partition has no owner, so the last parameters are not trained
cure: deal the parameters round-robin (i % world), or give the remainder to the last rank
line: per = len(params) // world
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(430)
X = torch.randn(96, 8)
y = torch.randint(0, 4, (96,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Linear(8, 16)
        self.mid = nn.Linear(16, 16)
        self.scale = nn.Parameter(torch.ones(4))
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        h = torch.relu(self.emb(x))
        h = torch.relu(self.mid(h))
        return self.out(h) * self.scale


def make_net():
    return Net()


class ZeroOne:
    def __init__(self, params, lr):
        params = list(params)
        world, rank = dist.get_world_size(), dist.get_rank()
        per = len(params) // world
        self.parts = [params[r * per:(r + 1) * per] for r in range(world)]
        self.opt = torch.optim.Adam(self.parts[rank], lr=lr)

    def step(self):
        self.opt.step()
        for src, part in enumerate(self.parts):
            for p in part:
                dist.broadcast(p.data, src=src)


def train(net, batches):
    model = DDP(net)
    zero = ZeroOne(model.parameters(), lr=1e-2)
    for xb, yb in batches:
        model.zero_grad()
        nn.functional.cross_entropy(model(xb), yb).backward()
        zero.step()
