"""wrong: gradients are taken with torch.autograd.grad and stored in p.grad by hand; DDP's hooks fire only when gradients are accumulated by backward, so nothing is averaged.

cause: torch.autograd.grad does not trigger DDP's gradient synchronisation
cure: call backward() through DDP, or all_reduce and divide the gradients from autograd.grad by hand
line: grads = torch.autograd.grad(loss, params)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(160)
X = torch.randn(96, 6)
y = torch.stack([X[:, 0] + X[:, 1], X[:, 2] * X[:, 3]], 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(6, 20)
        self.out = nn.Linear(20, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.shared(x)))


def make_net():
    return Net()


def manual_backward(loss, params):
    grads = torch.autograd.grad(loss, params)
    for p, g in zip(params, grads):
        p.grad = g.clone()


def train(net, batches):
    model = DDP(net)
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.Adam(params, lr=1e-2)
    for xb, yb in batches:
        pred = model(xb)
        loss = F.mse_loss(pred[:, 0], yb[:, 0]) + 0.5 * F.mse_loss(pred[:, 1], yb[:, 1])
        opt.zero_grad()
        manual_backward(loss, params)
        opt.step()
