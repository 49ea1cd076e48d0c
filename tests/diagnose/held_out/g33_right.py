"""right: a hinge critic with spectral norm; the power-iteration vectors are buffers that DDP broadcasts from rank 0, and they depend on weights only, so every rank normalises by the same value."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(33)
X = torch.randn(96, 2, 5, 5)
y = torch.where(X.mean((1, 2, 3)) > 0, 1.0, -1.0)


class SNCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = spectral_norm(nn.Conv2d(2, 6, 3))
        self.c2 = spectral_norm(nn.Conv2d(6, 8, 3))
        self.fc = spectral_norm(nn.Linear(8, 1))

    def forward(self, x):
        h = F.leaky_relu(self.c1(x), 0.2)
        h = F.leaky_relu(self.c2(h), 0.2)
        return self.fc(h.flatten(1)).squeeze(1)


def make_net():
    return SNCritic()


def hinge(score, sign):
    return F.relu(1 - sign * score).mean()


def train(net, batches):
    critic = DDP(net)
    opt = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0, 0.9))
    for img, sign in batches:
        opt.zero_grad()
        hinge(critic(img), sign).backward()
        opt.step()
