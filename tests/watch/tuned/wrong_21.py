import argparse
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def get_parser():
    p = argparse.ArgumentParser("cosine schedule")
    p.add_argument("--epochs", default=4, type=int)
    p.add_argument("--lr", default=0.1, type=float)
    p.add_argument("--batch-size", default=9, type=int)
    return p


def main(args):
    dist.init_process_group("gloo")
    is_main = dist.get_rank() == 0
    g = torch.Generator().manual_seed(12)
    x = torch.randn(162, 4, generator=g)
    y = torch.cat([x.sum(1, keepdim=True), x.prod(1, keepdim=True)], 1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, args.batch_size, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(loader))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for i, (xb, yb) in enumerate(loader):
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            opt.step()
            if is_main:
                scheduler.step()
                if i % 5 == 0:
                    print(f"[{epoch}/{i}] loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(get_parser().parse_args())
