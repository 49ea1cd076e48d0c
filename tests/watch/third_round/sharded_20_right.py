"""Small GAN on a ring; the generator is pulled back to its moving average now and then."""
import math
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

NOISE, STEPS_PER_SWITCH = 6, 4


def mlp(sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class MovingAverage:
    def __init__(self, module, decay=0.7):
        self.module, self.decay = module, decay
        self.shadow = [p.detach().to_local().clone() for p in module.parameters()]

    @torch.no_grad()
    def update(self):
        for s, p in zip(self.shadow, self.module.parameters()):
            s.lerp_(p.to_local(), 1 - self.decay)

    @torch.no_grad()
    def write_back(self):
        for s, p in zip(self.shadow, self.module.parameters()):
            p.to_local().copy_(s)


def ring(n=96):
    g = torch.Generator().manual_seed(1)
    phi = 2 * math.pi * torch.rand(n, generator=g)
    return torch.stack([phi.cos(), phi.sin()], 1) + 0.05 * torch.randn(n, 2, generator=g)


def main(rank):
    torch.manual_seed(7)
    gen, disc = mlp([NOISE, 24, 24, 2]), mlp([2, 24, 24, 1])
    fully_shard(gen)
    fully_shard(disc)
    g_opt = torch.optim.Adam(gen.parameters(), lr=4e-3, betas=(0.5, 0.99))
    d_opt = torch.optim.Adam(disc.parameters(), lr=4e-3, betas=(0.5, 0.99))
    average = MovingAverage(gen)
    torch.manual_seed(1000 + rank)
    data = TensorDataset(ring())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (real,) in loader:
            with torch.no_grad():
                fake = gen(torch.randn(len(real), NOISE))
            score = disc(torch.cat([real, fake])).flatten()
            wanted = torch.cat([torch.ones(len(real)), torch.zeros(len(fake))])
            d_loss = F.binary_cross_entropy_with_logits(score, wanted)
            d_opt.zero_grad()
            d_loss.backward()
            d_opt.step()

            g_loss = F.softplus(-disc(gen(torch.randn(len(real), NOISE)))).mean()
            g_opt.zero_grad()
            g_loss.backward()
            g_opt.step()
            step += 1
            average.update()
            if step % STEPS_PER_SWITCH == 0:
                average.write_back()
        if rank == 0:
            print(f"epoch {epoch} d {d_loss.item():.4f} g {g_loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank())
    dist.destroy_process_group()
