"""Toy diffusion model: predict the noise that was added at a random step."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STEPS = 50


class NoiseNet(nn.Module):
    def __init__(self, dim=8, hidden=48):
        super().__init__()
        self.time = nn.Embedding(STEPS, hidden)
        self.inp = nn.Linear(dim, hidden)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, dim))

    def forward(self, x, t):
        return self.out(self.inp(x) + self.time(t))


class Trainer:
    def __init__(self, cfg):
        self.rank = dist.get_rank()
        self.device = torch.device("cuda", self.rank) if torch.cuda.is_available() else torch.device("cpu")
        torch.manual_seed(cfg.seed)
        self.net = DDP(NoiseNet().to(self.device))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr)
        self.gen = torch.Generator().manual_seed(cfg.seed + 1)
        beta = torch.linspace(1e-3, 0.15, STEPS)
        self.keep = torch.cumprod(1 - beta, 0).to(self.device)

    def step(self, x0):
        t = torch.randint(0, STEPS, (len(x0),), generator=self.gen).to(self.device)
        eps = torch.randn(x0.shape, generator=self.gen).to(self.device)
        a = self.keep[t].unsqueeze(1)
        guess = self.net(a.sqrt() * x0 + (1 - a).sqrt() * eps, t)
        loss = (guess - eps).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=2e-3)
    cfg = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    trainer = Trainer(cfg)
    net = trainer.net
    g = torch.Generator().manual_seed(33)
    points = torch.randn(128, 2, generator=g).repeat(1, 4) + 0.05 * torch.randn(128, 8, generator=g)
    dataset = TensorDataset(points)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        losses = [trainer.step(x.to(trainer.device)) for (x,) in loader]
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        if trainer.rank == 0:
            print(f"epoch {epoch} loss {mean.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
