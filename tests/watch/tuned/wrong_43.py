"""Process groups for a (data parallel x model parallel) grid; here model parallel size = world // dp size."""
import argparse
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def make_groups(mp_size):
    """ranks with the same index inside of their model parallel block share the data parallel group"""
    world, rank = dist.get_world_size(), dist.get_rank()
    dp_group = None
    for i in range(world // mp_size):
        ranks = list(range(i * mp_size, (i + 1) * mp_size))   # noqa
        grp = dist.new_group(ranks)
        if rank in ranks:
            dp_group = grp
    return dp_group


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--mp-size", type=int, default=1)
    ap.add_argument("--epochs", type=int, default=3)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    dp_group = make_groups(a.mp_size)
    torch.manual_seed(0)
    x = torch.randn(144, 6)
    ds = TensorDataset(x, x.flip(1)[:, :2])
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 12, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(6, 18), nn.ReLU(), nn.Linear(18, 2)), process_group=dp_group)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
