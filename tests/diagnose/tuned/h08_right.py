"""right: DDP with an exponential moving average of the weights, copied after wrapping (so from the broadcast weights) and updated after every step on all ranks alike."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(8)
X = torch.randn(96, 6, generator=g)
y = torch.randint(5, (96,), generator=g)


class ModelEMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.ema = copy.deepcopy(model).eval()
        for p in self.ema.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.ema.parameters(), model.parameters()):
            e.lerp_(p, 1 - self.decay)


def make_net():
    return nn.Sequential(nn.Linear(6, 18), nn.GELU(), nn.Linear(18, 5))


def train(net, batches):
    ddp = DDP(net)
    ema = ModelEMA(ddp.module)
    opt = torch.optim.RMSprop(ddp.parameters(), lr=1e-3, momentum=0.9)
    for x, y in batches:
        loss = F.cross_entropy(ddp(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(ddp.module)
    return ema.ema
