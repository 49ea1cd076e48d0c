"""right: two heads with learned uncertainty weights; the log-variances are parameters of the wrapped net and the whole loss is computed in forward, so DDP averages their gradients as well."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(1111)
X = torch.randn(96, 8)
# column 0: class label, column 1: regression target
y = torch.stack([(X[:, 0] > 0.2).to(X.dtype) + (X[:, 1] > 0), X[:, 2:5].norm(dim=1)], dim=1)


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 24), nn.Mish(), nn.Linear(24, 12), nn.Mish())
        self.cls = nn.Linear(12, 3)
        self.reg = nn.Linear(12, 1)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x, target=None):
        z = self.trunk(x)
        logits, value = self.cls(z), self.reg(z).squeeze(1)
        if target is None:
            return logits, value
        l_cls = F.cross_entropy(logits, target[:, 0].long())
        l_reg = F.mse_loss(value, target[:, 1])
        prec = torch.exp(-self.log_var)
        return prec[0] * l_cls + 0.5 * prec[1] * l_reg + 0.5 * self.log_var.sum()


def make_net():
    return TwoTasks()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam([
        {"params": [p for n, p in net.named_parameters() if n != "log_var"], "lr": 2e-3},
        {"params": [net.log_var], "lr": 2e-2},
    ])
    for x, target in batches:
        opt.zero_grad()
        loss = model(x, target)
        loss.backward()
        opt.step()
