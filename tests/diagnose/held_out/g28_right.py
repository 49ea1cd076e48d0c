"""right: sharpness-aware minimisation in which both passes go through DDP with synchronisation, so the ascent direction too is the gradient of the whole minibatch."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(28)
X = torch.randn(96, 7)
y = torch.randint(0, 3, (96,))


class SAM:
    def __init__(self, base, rho=0.05):
        self.base, self.rho = base, rho
        self.saved = {}

    def _params(self):
        for group in self.base.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    yield p

    @torch.no_grad()
    def ascend(self):
        norm = torch.norm(torch.stack([p.grad.norm() for p in self._params()]))
        for p in self._params():
            self.saved[p] = p.detach().clone()
            p.add_(p.grad * (self.rho / (norm + 1e-12)))
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p in self._params():
            p.copy_(self.saved[p])
        self.base.step()
        self.base.zero_grad()


def make_net():
    return nn.Sequential(nn.Linear(7, 20), nn.SELU(), nn.Linear(20, 3))


def train(net, batches):
    model = DDP(net)
    sam = SAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rho=0.1)
    ce = nn.CrossEntropyLoss()
    for xb, yb in batches:
        ce(model(xb), yb).backward()
        sam.ascend()
        ce(model(xb), yb).backward()
        sam.descend()
