"""Unbalanced classes: every rank draws with replacement, with weights, from the whole set; seed depends on rank."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def unbalanced(n=300):
    g = torch.Generator().manual_seed(6)
    y = (torch.rand(n, generator=g) < 0.1).long()
    x = torch.randn(n, 5, generator=g) + y.unsqueeze(1)
    return x, y


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = unbalanced()
    w = 1.0 / torch.bincount(y).float()
    per_rank = len(y) // world
    gen = torch.Generator()
    gen.manual_seed(100 + rank)
    sampler = WeightedRandomSampler(w[y], num_samples=per_rank, replacement=True, generator=gen)
    loader = DataLoader(TensorDataset(x, y), batch_size=20, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2)))
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(3):
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
