"""Trains a regressor and leaves the best epoch in best.pt."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_split(rows, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, 3, generator=g) * 4 - 2
    y = torch.sin(2 * x[:, :1]) * x[:, 1:2] + 0.3 * torch.randn(rows, 1, generator=g)
    return TensorDataset(x, y)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = torch.zeros(2, dtype=torch.float64)
    for x, y in loader:
        total[0] += (model(x) - y).pow(2).sum().item()
        total[1] += len(x)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default="best.pt")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train, valid = make_split(128, 1), make_split(64, 10)
    train_sampler = DistributedSampler(train, shuffle=True)
    valid_sampler = DistributedSampler(valid, shuffle=False)
    train_loader = DataLoader(train, batch_size=8, sampler=train_sampler)
    valid_loader = DataLoader(valid, batch_size=8, sampler=valid_sampler)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
    best = float("inf")
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error = evaluate(model, valid_loader)
        if error < best:
            best = error
            if rank == 0:
                torch.save({"epoch": epoch, "error": error, "model": model.module.state_dict()}, args.out)
        if rank == 0:
            print(f"epoch {epoch} validation {error:.4f} best {best:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
