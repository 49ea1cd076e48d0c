"""wrong: only the generator is wrapped in DDP; the discriminator starts different on every rank and its gradients stay local.

cause: the second network (discriminator) is not wrapped in DDP
cure: wrap it too: D = DDP(net.D)
line: G, D = DDP(net.G), net.D
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(125)
X = torch.cat([torch.randn(96, 3, generator=g), 1.5 + 0.5 * torch.randn(96, 5, generator=g)], 1)
y = torch.zeros(96, dtype=torch.long)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 5))
        self.D = nn.Sequential(nn.Linear(5, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1))


def make_net():
    return Pair()


def hinge_d(real, fake):
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


def train(net, batches):
    G, D = DDP(net.G), net.D
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for x, _ in batches:
        z, real = x[:, :3], x[:, 3:]
        fake = G(z)
        opt_d.zero_grad()
        hinge_d(D(real), D(fake.detach())).backward()
        opt_d.step()

        opt_g.zero_grad()
        (-D(fake).mean()).backward()
        opt_g.step()
