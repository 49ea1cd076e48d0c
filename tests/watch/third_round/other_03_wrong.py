"""Denoising autoencoder; each epoch leaves a checkpoint, --resume FILE picks it up again."""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Denoiser(nn.Module):
    def __init__(self, width=12, code=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, code))
        self.decoder = nn.Sequential(nn.Linear(code, 24), nn.GELU(), nn.Linear(24, width))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def save(path, model, opt, epoch, rank):
    if rank == 0:
        torch.save(dict(model=model.module.state_dict(), opt=opt.state_dict(), epoch=epoch, rng=torch.get_rng_state()), path)
    dist.barrier()


def load(path, model, opt, rank):
    ckpt = torch.load(path, map_location="cpu")
    model.module.load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    torch.set_rng_state(ckpt["rng"])
    return ckpt["epoch"] + 1


def run(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(21)
    clean = TensorDataset(torch.randn(128, 4, generator=g) @ torch.randn(4, 12, generator=g))
    sampler = DistributedSampler(clean, shuffle=True, drop_last=True)
    loader = DataLoader(clean, batch_size=16, sampler=sampler)

    torch.manual_seed(args.seed)
    model = DDP(Denoiser())
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    torch.manual_seed(args.seed + 1 + rank)
    start = load(args.resume, model, opt, rank) if args.resume else 0
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            noisy = x + 0.5 * torch.randn(x.shape)
            loss = F.mse_loss(model(noisy), x)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.5f}")
        save(f"dae_{epoch}.pt", model, opt, epoch, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--resume")
    run(p.parse_args())
