"""Prepared for hybrid parallelism: a model-parallel group and a data-parallel group per rank."""
import argparse
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def build_groups(mp_size):
    """ranks [0..mp) form a model-parallel group etc.; returns (mp_group, dp_group) of this rank"""
    rank, world = dist.get_rank(), dist.get_world_size()
    mp_group = dp_group = None
    for start in range(0, world, mp_size):
        ranks = list(range(start, min(start + mp_size, world)))
        g = dist.new_group(ranks)
        if rank in ranks:
            mp_group = g
    for off in range(mp_size):
        ranks = list(range(off, world, mp_size))
        g = dist.new_group(ranks)
        if rank in ranks:
            dp_group = g
    return mp_group, dp_group


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model-parallel", type=int, default=1)
    ap.add_argument("--epochs", type=int, default=3)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    mp_group, dp_group = build_groups(a.model_parallel)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 2))
    net = DDP(net, process_group=mp_group)
    g = torch.Generator().manual_seed(1)
    x = torch.randn(192, 16, generator=g)
    ds = TensorDataset(x, (x[:, :8].sum(1) > x[:, 8:].sum(1)).long())
    sampler = DistributedSampler(ds, num_replicas=dist.get_world_size(dp_group), rank=dist.get_rank(dp_group))
    loader = DataLoader(ds, 16, sampler=sampler)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(xb), yb)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
