"""right: Lookahead around Adam; the slow weights are copied after DDP has broadcast rank 0's weights and are pulled in by the same step count on every rank."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(270)
X = torch.randn(96, 5)
y = (X ** 2).sum(1, keepdim=True).log1p()


class Lookahead:
    def __init__(self, inner, k=2, alpha=0.5):
        self.inner, self.k, self.alpha = inner, k, alpha
        self.count = 0
        self.slow = [[p.detach().clone() for p in g["params"]] for g in inner.param_groups]

    def zero_grad(self):
        self.inner.zero_grad(set_to_none=True)

    def step(self):
        self.inner.step()
        self.count += 1
        if self.count % self.k:
            return
        with torch.no_grad():
            for slow, group in zip(self.slow, self.inner.param_groups):
                for s, p in zip(slow, group["params"]):
                    s.add_(p - s, alpha=self.alpha)
                    p.copy_(s)


def make_net():
    return nn.Sequential(nn.Linear(5, 16), nn.CELU(), nn.Linear(16, 16), nn.CELU(), nn.Linear(16, 1))


def train(net, batches):
    model = DDP(net)
    opt = Lookahead(torch.optim.Adam(model.parameters(), lr=2e-2), k=2, alpha=0.6)
    for xb, yb in batches:
        loss = F.mse_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
