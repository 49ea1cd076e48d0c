import argparse
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def parse():
    p = argparse.ArgumentParser(description="hand-made synchronous SGD")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=0.05)
    return p.parse_args()


def make_dataset():
    g = torch.Generator().manual_seed(0)
    x = torch.rand(210, 3, generator=g) * 4 - 2
    return TensorDataset(x, torch.sin(x).prod(1, keepdim=True))


def average_grads(model):
    n = float(dist.get_world_size())
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.div_(n)


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed + rank)      # different noise on each rank
    model = nn.Sequential(nn.Linear(3, 32), nn.Dropout(0.05), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    ds = make_dataset()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=15, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        run = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            average_grads(model)
            optimizer.step()
            run += loss.item()
        if rank == 0:
            print(f"{epoch}: {run / len(loader):.4f}")
    dist.destroy_process_group()


main()
