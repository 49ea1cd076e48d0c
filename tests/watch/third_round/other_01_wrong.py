"""House prices from a table of measurements. Continue an earlier run with --resume FILE."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_table(rows=96, columns=10):
    g = torch.Generator().manual_seed(11)
    table = torch.randn(rows, columns, generator=g)
    price = table[:, :1] * 2 - table[:, 1:2] ** 2 + 0.1 * torch.randn(rows, 1, generator=g)
    return TensorDataset(table, price)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--resume", default="")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)

    first = torch.zeros(1, dtype=torch.long)
    if args.resume and rank == 0:
        saved = torch.load(args.resume, map_location="cpu")
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        first.fill_(saved["epoch"] + 1)
    dist.broadcast(first, 0)
    model = DistributedDataParallel(net)

    data = make_table()
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    criterion = nn.MSELoss()
    for epoch in range(int(first), args.epochs):
        sampler.set_epoch(epoch)
        for table, price in loader:
            optimizer.zero_grad()
            loss = criterion(model(table), price)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
                       f"prices_{epoch}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
