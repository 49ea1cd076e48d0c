import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=6)
    p.add_argument("--lr", type=float, default=3e-3)
    return p.parse_args()


def make_data(n=228):
    g = torch.Generator().manual_seed(11)
    x = torch.randn(n, 12, generator=g)
    return TensorDataset(x, (x[:, :3].sum(1) > 0).long())


def main():
    args = get_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    ds = make_data()
    sampler = DistributedSampler(ds, drop_last=True)
    loader = DataLoader(ds, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 2)))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    ce = nn.CrossEntropyLoss()
    n_batches = len(loader)
    tail = n_batches % args.accum

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        opt.zero_grad(set_to_none=True)
        for i, (x, y) in enumerate(loader):
            last = (i + 1) % args.accum == 0 or i + 1 == n_batches
            window = tail if i >= n_batches - tail else args.accum
            ctx = contextlib.nullcontext() if last else model.no_sync()
            with ctx:
                loss = ce(model(x), y) / window
                loss.backward()
            if last:
                opt.step()
                opt.zero_grad(set_to_none=True)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item() * window:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
