"""right: stochastic weight averaging and a hand-written Lookahead on top of DDP; both are functions of the (equal) weights after each step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel

g = torch.Generator().manual_seed(59)
X = torch.randn(96, 6, generator=g)
y = torch.randint(4, (96,), generator=g)


class Lookahead:
    def __init__(self, params, every=2, alpha=0.5):
        self.params = list(params)
        self.slow = [p.detach().clone() for p in self.params]
        self.every, self.alpha, self.n = every, alpha, 0

    @torch.no_grad()
    def after_step(self):
        self.n += 1
        if self.n % self.every:
            return
        for s, p in zip(self.slow, self.params):
            s.add_(p - s, alpha=self.alpha)
            p.copy_(s)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.RAdam(model.parameters(), lr=1e-2)
    look = Lookahead(model.parameters())
    swa = AveragedModel(model.module)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
        look.after_step()
        swa.update_parameters(model.module)
    return swa
