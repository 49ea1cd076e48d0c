"""right: BYOL-like training; the target network is copied after wrapping (hence from rank 0's broadcast weights) and moved by EMA the same way on every rank."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(52)
c = torch.randn(96, 8, generator=g)
X = torch.cat([c + 0.3 * torch.randn(96, 8, generator=g), c + 0.3 * torch.randn(96, 8, generator=g)], 1)
y = torch.zeros(96, dtype=torch.long)


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 8))
        self.predictor = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        return self.predictor(self.encoder(x))


def make_net():
    return Online()


@torch.no_grad()
def ema_update(target, online, m=0.95):
    for t, o in zip(target.parameters(), online.parameters()):
        t.mul_(m).add_(o, alpha=1 - m)


def train(net, batches):
    model = DDP(net)
    target = copy.deepcopy(model.module.encoder).requires_grad_(False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, _ in batches:
        a, b = x.chunk(2, dim=1)
        pa, pb = model(torch.cat([a, b])).chunk(2)
        with torch.no_grad():
            ta, tb = target(a), target(b)
        loss = 2 - F.cosine_similarity(pa, tb).mean() - F.cosine_similarity(pb, ta).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema_update(target, model.module.encoder)
