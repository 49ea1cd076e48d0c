"""right: SAM under DDP: the first backward is synchronised too, so all ranks climb along the same averaged gradient before the second synchronised backward."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(44)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params, self.base, self.rho = list(params), base, rho
        self.eps = {}

    @torch.no_grad()
    def ascend(self):
        norm = torch.norm(torch.stack([p.grad.norm() for p in self.params]))
        for p in self.params:
            e = p.grad * (self.rho / (norm + 1e-12))
            p.add_(e)
            self.eps[p] = e
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p in self.params:
            p.sub_(self.eps.pop(p))
        self.base.step()
        self.base.zero_grad()


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4))


def train(net, batches):
    model = DDP(net)
    sam = SAM(model.parameters(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for x, y in batches:
        F.cross_entropy(model(x), y).backward()
        sam.ascend()
        F.cross_entropy(model(x), y).backward()
        sam.descend()
