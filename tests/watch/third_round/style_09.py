"""GAN on two-dimensional rings; generator and discriminator are sharded separately."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

Z_DIM = 6


def mlp(sizes, act):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers, nn.Linear(*sizes[-2:]))


def rings(n):
    g = torch.Generator().manual_seed(77)
    angle = 2 * torch.pi * torch.rand(n, generator=g)
    radius = 1.0 + (torch.arange(n) % 2) + 0.05 * torch.randn(n, generator=g)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def shard(net):
    for child in net:
        if isinstance(child, nn.Linear):
            fully_shard(child)
    return fully_shard(net)


class Setup:
    def __init__(self):
        torch.manual_seed(31)
        netG, netD = mlp([Z_DIM, 32, 32, 2], nn.ReLU), mlp([2, 32, 32, 1], lambda: nn.LeakyReLU(0.2))
        self.netG, self.netD = shard(netG), shard(netD)
        self.optG = torch.optim.Adam(self.netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
        self.optD = torch.optim.Adam(self.netD.parameters(), lr=2e-3, betas=(0.5, 0.999))

    def discriminator_step(self, real, z):
        with torch.no_grad():
            fake = self.netG(z)
        scores = self.netD(torch.cat([real, fake]))
        s_real, s_fake = scores.split([len(real), len(fake)])
        loss = F.softplus(-s_real).mean() + F.softplus(s_fake).mean()
        self.optD.zero_grad()
        loss.backward()
        self.optD.step()
        return loss.detach()

    def generator_step(self, z):
        loss = F.softplus(-self.netD(self.netG(z))).mean()
        self.optG.zero_grad()
        loss.backward()
        self.optG.step()
        return loss.detach()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gan = Setup()
    data = TensorDataset(rings(128))
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
    z_gen = torch.Generator().manual_seed(500 + rank)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        totals = torch.zeros(2)
        for (real,) in loader:
            totals[0] += gan.discriminator_step(real, torch.randn(len(real), Z_DIM, generator=z_gen))
            totals[1] += gan.generator_step(torch.randn(len(real), Z_DIM, generator=z_gen))
        dist.all_reduce(totals)
        d, g = (totals / (len(loader) * world)).tolist()
        if rank == 0:
            print(f"epoch {epoch}: D {d:.3f} G {g:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
