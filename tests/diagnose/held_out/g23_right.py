"""right: a GAN with generator and discriminator each in their own DDP; the generator step uses the bare discriminator because its gradients are thrown away, and the latent noise is part of the data."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(230)
Z = 4
X = torch.randn(96, Z)                      # latent codes
y = torch.randn(96, 3).abs() + 0.1 * X[:, :3]  # "real" data


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = nn.Sequential(nn.Linear(Z, 16), nn.ReLU(), nn.Linear(16, 3))
        self.D = nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


def make_net():
    return Pair()


def train(net, batches):
    G, D = DDP(net.G), DDP(net.D)
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))

    for z, real in batches:
        fake = G(z)

        # --- discriminator
        both = D(torch.cat([real, fake.detach()]))
        s_real, s_fake = both.chunk(2)
        d_loss = F.softplus(-s_real).mean() + F.softplus(s_fake).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

        # --- generator (D is only a function here, no reduction of its grads wanted)
        g_loss = F.softplus(-D.module(fake)).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
