"""WGAN-GP on a ring of gaussians, both networks in DDP."""
import math, os
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

LATENT, LAMBDA, N_CRITIC = 4, 10.0, 2


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, o))


def ring(n=192):
    g = torch.Generator().manual_seed(3)
    a = torch.randint(0, 8, (n,), generator=g) * (2 * math.pi / 8)
    return torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2, generator=g)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.size(0), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    score = critic(mix)
    grad, = torch.autograd.grad(score.sum(), mix, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def set_requires_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)           # DDP sends rank 0's weights to the others; noise differs
    G, D = DDP(mlp(LATENT, 2)), DDP(mlp(2, 1))
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))
    ds = TensorDataset(ring())
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 8, sampler=sampler, drop_last=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for it, (real,) in enumerate(loader):
            with torch.no_grad():
                fake = G.module(torch.randn(real.size(0), LATENT))
            opt_d.zero_grad()
            loss_d = D(fake).mean() - D(real).mean() + LAMBDA * gradient_penalty(D, real, fake)
            loss_d.backward()
            opt_d.step()
            if (it + 1) % N_CRITIC == 0:
                set_requires_grad(D, False)
                opt_g.zero_grad()
                loss_g = -D.module(G(torch.randn(real.size(0), LATENT))).mean()
                loss_g.backward()
                opt_g.step()
                set_requires_grad(D, True)
        if rank == 0:
            print(epoch, float(loss_d), float(loss_g))
    dist.destroy_process_group()


main()
