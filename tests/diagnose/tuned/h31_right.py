"""right: a GAN whose generator and discriminator each have a DDP wrapper; the noise comes with the data, the discriminator step uses detached fakes, and each optimizer clears its own gradients."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

g = torch.Generator().manual_seed(32)
X = torch.cat([torch.randn(96, 4, generator=g), 2 + torch.randn(96, 6, generator=g)], dim=1)
y = torch.zeros(96, dtype=torch.long)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
        self.D = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


def make_net():
    return GAN()


def d_step(G, D, opt, noise, real):
    with torch.no_grad():
        fake = G(noise)
    logits = D(torch.cat([real, fake]))
    n = len(real)
    loss = F.softplus(-logits[:n]).mean() + F.softplus(logits[n:]).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


def g_step(G, D, opt, noise):
    loss = F.softplus(-D(G(noise))).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


def train(net, batches):
    G, D = DDP(net.G), DDP(net.D)
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
    for x, _ in batches:
        noise, real = x[:, :4], x[:, 4:]
        d_step(G, D, opt_d, noise, real)
        g_step(G, D, opt_g, noise)
