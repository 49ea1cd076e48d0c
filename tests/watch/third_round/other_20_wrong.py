"""GAN on two-dimensional points, with one optimizer for each network."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

LATENT = 4


def mlp(inp, out):
    return nn.Sequential(nn.Linear(inp, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, out))


def ring(n):
    g = torch.Generator().manual_seed(70)
    angle = torch.randint(0, 8, (n,), generator=g) * (torch.pi / 4)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2, generator=g)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = TensorDataset(ring(128))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    torch.manual_seed(71)
    gen, disc = mlp(LATENT, 2), mlp(2, 1)
    gen = DDP(gen)
    opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.99))
    opt_d = torch.optim.Adam(disc.parameters(), lr=2e-3, betas=(0.5, 0.99))
    torch.manual_seed(72 + rank)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (real,) in loader:
            n = len(real)
            fake = gen(torch.randn(n, LATENT))
            score = disc(torch.cat([real, fake.detach()]))
            loss_d = F.softplus(-score[:n]).mean() + F.softplus(score[n:]).mean()
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()

            loss_g = F.softplus(-disc(fake)).mean()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
        if rank == 0:
            print(f"epoch {epoch} critic {loss_d.item():.4f} generator {loss_g.item():.4f}")
    if rank == 0:
        torch.save({"gen": gen.module.state_dict()}, "gan.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
