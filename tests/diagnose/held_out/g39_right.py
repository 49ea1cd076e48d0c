"""right: gradient surgery (PCGrad) by hand: the gradient of every task is averaged over ranks before the conflicting part is projected out, so the non-linear projection acts on the gradients of the whole minibatch."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(39)
X = torch.randn(96, 6)
y = torch.stack([X.sum(1), -X.sum(1) + X[:, 0] ** 2], 1)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.h1, self.h2 = nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x):
        z = self.trunk(x)
        return self.h1(z).squeeze(1), self.h2(z).squeeze(1)


def make_net():
    return TwoHeads()


def task_gradient(loss, params):
    grads = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
    flat = torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in zip(grads, params)])
    dist.all_reduce(flat)
    return flat / dist.get_world_size()


def pcgrad(g1, g2):
    dot = torch.dot(g1, g2)
    if dot < 0:
        return g1 - dot / g2.dot(g2) * g2 + g2 - dot / g1.dot(g1) * g1
    return g1 + g2


def train(net, batches):
    params = list(net.parameters())
    with torch.no_grad():
        for p in params:
            dist.broadcast(p, src=0)
    opt = torch.optim.Adam(params, lr=1e-2)
    for xb, yb in batches:
        o1, o2 = net(xb)
        flat = pcgrad(task_gradient(F.mse_loss(o1, yb[:, 0]), params),
                      task_gradient(F.mse_loss(o2, yb[:, 1]), params))
        for p, g in zip(params, flat.split([p.numel() for p in params])):
            p.grad = g.view_as(p).clone()
        opt.step()
