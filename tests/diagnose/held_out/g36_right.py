"""right: a custom optimizer (Lion with gradient centralisation) that works on p.grad inside step(), that is after DDP has averaged, so its non-linear parts see the same gradient on every rank."""
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import Optimizer

torch.manual_seed(36)
X = torch.randn(96, 10)
y = torch.tanh(X[:, :3] - X[:, 3:6])


class CentralisedLion(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if g.dim() > 1:
                    g = g - g.mean(dim=tuple(range(1, g.dim())), keepdim=True)
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = (b1 * m + (1 - b1) * g).sign_()
                p.add_(update, alpha=-group["lr"])
                m.mul_(b2).add_(g, alpha=1 - b2)
        return loss


def make_net():
    return nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 3))


def train(net, batches):
    model = DDP(net)
    opt = CentralisedLion(model.parameters(), lr=2e-3, weight_decay=0.01)
    for xb, yb in batches:
        opt.zero_grad()
        nn.functional.mse_loss(model(xb), yb).backward()
        opt.step()
