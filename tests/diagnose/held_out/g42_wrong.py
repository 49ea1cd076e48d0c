"""wrong: the gradient penalty differentiates the mean of the outputs, so each example's input gradient carries a factor one over the shard size, and the penalty is world-size squared times larger than on the single device.

cause: input gradient of the batch mean depends on the local batch size, so the penalty has the wrong scale on shards
cure: differentiate out.sum() instead of out.mean()
line: g, = torch.autograd.grad(out.mean(), x, create_graph=True)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(420)
X = torch.rand(96, 3) * 2 - 1
y = (X ** 2).sum(1, keepdim=True).sqrt() - 0.5      # signed distance to a sphere

WEIGHT = 20.0


class SDF(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(3, 24), nn.Softplus(beta=5), nn.Linear(24, 24), nn.Softplus(beta=5), nn.Linear(24, 1))

    def forward(self, x):
        return self.f(x)


def make_net():
    return SDF()


def smoothness(model, x):
    x = x.clone().requires_grad_()
    out = model(x)
    g, = torch.autograd.grad(out.mean(), x, create_graph=True)
    return out, g.pow(2).sum(dim=1).mean()


def train(net, batches):
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for pts, d in batches:
        out, penalty = smoothness(model, pts)
        loss = F.l1_loss(out, d) + WEIGHT * penalty
        opt.zero_grad()
        loss.backward()
        opt.step()
