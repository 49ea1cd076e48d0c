"""right: an R1 gradient penalty through the DDP forward: the gradient of the summed outputs gives each example its own input gradient, and the penalty is a mean over examples, so it averages over equal shards."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(22)
real = torch.randn(48, 6) * 0.5 + 1.0
fake = torch.randn(48, 6)
perm = torch.randperm(96)
X = torch.cat([real, fake])[perm]
y = torch.cat([torch.ones(48, 1), torch.zeros(48, 1)])[perm]


class Critic(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, w), nn.Linear(w, w), nn.Linear(w, 1)

    def forward(self, x):
        return self.c(F.softplus(self.b(F.softplus(self.a(x)))))


def make_net():
    return Critic()


def train(net, batches, r1_gamma=2.0):
    disc = DDP(net)
    opt = torch.optim.Adam(disc.parameters(), lr=2e-3, betas=(0.0, 0.99))
    for x, is_real in batches:
        x = x.detach().clone().requires_grad_(True)
        logits = disc(x)
        adv = F.binary_cross_entropy_with_logits(logits, is_real)
        (grad_x,) = torch.autograd.grad(outputs=logits.sum(), inputs=x, create_graph=True)
        per_sample = grad_x.square().sum(dim=1, keepdim=True)
        penalty = (r1_gamma / 2) * (per_sample * is_real).mean()
        opt.zero_grad(set_to_none=True)
        (adv + penalty).backward()
        opt.step()
