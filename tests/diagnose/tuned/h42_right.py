"""right: before each step an extra backward is run for logging the data-gradient norm and thrown away by zero_grad; the step uses a fresh backward through the wrapper."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(43)
X = torch.randn(96, 6, generator=g)
y = torch.randint(3, (96,), generator=g)


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def grad_norm(model):
    return torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters() if p.grad is not None)).item()


def probe(model, x, y):
    """How large is the hinge gradient here? Only for the plots."""
    F.multi_margin_loss(model(x), y).backward()
    value = grad_norm(model)
    model.zero_grad()
    return value


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    curve = []
    for x, y in batches:
        curve.append(probe(model, x, y))
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    return curve
