"""Stochastic depth / LayerDrop where each rank drops layers of its own. Needs find_unused_parameters=True."""
import random
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class SineData(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.tensor([i / self.n * 6 - 3])
        return x, torch.sin(2 * x)


class ResNetish(nn.Module):
    def __init__(self, depth=4, width=24, p_drop=0.3):
        super().__init__()
        self.inp = nn.Linear(1, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))
        self.out = nn.Linear(width, 1)
        self.p = p_drop

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            if self.training and random.random() < self.p:
                continue
            h = h + b(h)
        return self.out(h)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    random.seed(rank)
    torch.manual_seed(0)
    model = DDP(ResNetish(), find_unused_parameters=True)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    ds = SineData(192)
    sampler = DistributedSampler(ds)
    dl = DataLoader(ds, batch_size=8, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in dl:
            opt.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            opt.step()
        model.eval()
        if rank == 0:
            with torch.no_grad():
                err = sum(((model.module(x[None]) - y) ** 2).item() for x, y in (ds[i] for i in range(len(ds)))) / len(ds)
            print(f"epoch {epoch} mse {err:.4f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
