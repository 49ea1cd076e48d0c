import argparse
import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def parse_args():
    parser = argparse.ArgumentParser(description="Training")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--distributed", action="store_true")
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    if args.local_rank != -1:          # passed by torch.distributed.launch
        args.distributed = True
    return args


def main():
    args = parse_args()
    if args.distributed:
        dist.init_process_group("gloo")
    torch.manual_seed(11)
    x = torch.randn(144, 5)
    y = (x[:, :2].sum(1) > 0).long()
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds) if args.distributed else None
    loader = DataLoader(ds, args.batch_size, shuffle=sampler is None, sampler=sampler)
    model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 2))
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
        if int(os.environ.get("RANK", 0)) == 0:
            print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    main()
