"""right: weight-normalised layers (parametrised in make_net, so DDP knows magnitude and direction) and a hand-written L2 term on the weights that is the same on every rank and therefore survives averaging unchanged."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(320)
X = torch.randn(96, 9)
y = torch.stack([X[:, :3].amax(1), X[:, 3:6].amin(1)], 1)

L2 = 1e-2


def make_net():
    return nn.Sequential(
        weight_norm(nn.Linear(9, 18)), nn.ReLU(),
        weight_norm(nn.Linear(18, 18)), nn.ReLU(),
        nn.Linear(18, 2),
    )


def ridge(module):
    return sum(m.weight.pow(2).sum() for m in module.modules() if isinstance(m, nn.Linear))


def train(net, batches):
    ddp = DDP(net)
    decay, rest = [], []
    for name, p in ddp.module.named_parameters():
        (rest if name.endswith("bias") else decay).append(p)
    opt = torch.optim.NAdam([dict(params=decay), dict(params=rest, lr=1e-2)], lr=2e-3)
    for xb, yb in batches:
        fit = (ddp(xb) - yb).abs().mean()
        loss = fit + L2 * ridge(ddp.module)
        opt.zero_grad()
        loss.backward()
        opt.step()
