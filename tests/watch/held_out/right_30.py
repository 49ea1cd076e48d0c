import argparse
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EarlyStopping:
    def __init__(self, patience, delta=0.0):
        self.patience, self.delta, self.best, self.bad = patience, delta, None, 0

    def __call__(self, value):
        if self.best is None or value < self.best - self.delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def global_val_loss(model, loader):
    """each rank looks at its (disjoint, unpadded) part; sums and counts are added over the ranks"""
    model.eval()
    acc = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for x, y in loader:
            acc[0] += nn.functional.cross_entropy(model.module(x), y, reduction="sum").double()
            acc[1] += len(y)
    dist.all_reduce(acc)
    return (acc[0] / acc[1]).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-epochs", type=int, default=4)
    ap.add_argument("--patience", type=int, default=2)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(64)
    x = torch.randn(265, 8, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long()
    train = TensorDataset(x[:180], y[:180])
    val = TensorDataset(x[180:], y[180:])
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, 15, sampler=sampler)
    val_loader = DataLoader(Subset(val, range(rank, len(val), world)), 16)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5)
    stopper = EarlyStopping(args.patience)
    for epoch in range(args.max_epochs):
        model.train()
        sampler.set_epoch(epoch)
        for xb, yb in train_loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            opt.step()
        v = global_val_loss(model, val_loader)
        plateau.step(v)
        stop = torch.tensor([1.0 if stopper(v) else 0.0])
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(f"epoch {epoch} val {v:.4f} stop {bool(stop)}")
        if stop.item() > 0:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
