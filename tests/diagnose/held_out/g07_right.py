"""right: keeps an exponential moving average of the weights, copied after wrapping and only ever read by the evaluation, and evaluates it between steps without gradients; the training itself is plain DDP."""
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

rng = torch.Generator().manual_seed(2024)
X = torch.randn(96, 9, generator=rng)
y = ((X[:, 0] * X[:, 1] > 0).long() + (X[:, 2] > 0).long())


class ModelEma:
    def __init__(self, model, decay=0.9):
        self.ema = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.ema.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for e, m in zip(self.ema.state_dict().values(), model.state_dict().values()):
            if e.dtype.is_floating_point:
                e.mul_(self.decay).add_(m.detach(), alpha=1 - self.decay)
            else:
                e.copy_(m)


@torch.no_grad()
def accuracy(model, x, t):
    hits = (model(x).argmax(1) == t).sum()
    total = torch.tensor(t.numel())
    dist.all_reduce(hits)
    dist.all_reduce(total)
    return hits.item() / total.item()


def make_net():
    return nn.Sequential(nn.Linear(9, 32), nn.LayerNorm(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3))


def train(net, batches):
    net = DDP(net)
    ema = ModelEma(net.module)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3, amsgrad=True)
    history = []
    for x, t in batches:
        net.train()
        loss = F.cross_entropy(net(x), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(net.module)
        net.eval()
        history.append((accuracy(net.module, x, t), accuracy(ema.ema, x, t)))
    return history
