"""HSDP regression trainer: replicas outside, shards inside, accumulation over micro-batches."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shard-degree", type=int, default=1)
    ap.add_argument("--micro-batch", type=int, default=4)
    ap.add_argument("--accum", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--clip", type=float, default=0.7)
    return ap.parse_args()


class Signals(Dataset):
    def __init__(self, n=96, length=24):
        g = torch.Generator().manual_seed(6)
        self.freq = 0.2 + torch.rand(n, 1, generator=g)
        phase = 6.28 * torch.rand(n, 1, generator=g)
        self.wave = torch.sin(self.freq * torch.arange(length) + phase) + 0.1 * torch.randn(n, length, generator=g)

    def __len__(self):
        return len(self.freq)

    def __getitem__(self, item):
        return {"wave": self.wave[item].unsqueeze(0), "freq": self.freq[item]}


class ConvNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 5, padding=2)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.GroupNorm(3, width), nn.ReLU()) for _ in range(3))
        self.regressor = nn.Linear(width, 1)

    def forward(self, wave):
        h = self.stem(wave)
        for stage in self.stages:
            h = h + stage(h)
        return self.regressor(h.mean(-1))


def build(mesh, seed):
    torch.manual_seed(seed)
    net = ConvNet()
    for stage in net.stages:
        fully_shard(stage, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mesh = init_device_mesh("cpu", (world // args.shard_degree, args.shard_degree), mesh_dim_names=("replicate", "shard"))
    net = build(mesh, seed=99)
    optimizer = torch.optim.NAdam(net.parameters(), lr=args.lr)
    dataset = Signals()
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, seed=3)
    loader = DataLoader(dataset, batch_size=args.micro_batch, sampler=sampler)
    assert len(loader) % args.accum == 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        epoch_loss = 0.0
        for i, sample in enumerate(loader):
            last = (i + 1) % args.accum == 0
            net.set_is_last_backward(last)
            net.set_requires_gradient_sync(last)
            loss = F.smooth_l1_loss(net(sample["wave"]), sample["freq"])
            (loss / args.accum).backward()
            epoch_loss += loss.item()
            if last:
                norm = nn.utils.clip_grad_norm_(net.parameters(), args.clip)
                optimizer.step()
                optimizer.zero_grad()
        stats = torch.tensor([epoch_loss / len(loader)])
        dist.all_reduce(stats)
        norm = norm.full_tensor().item()
        if rank == 0:
            print(f"epoch {epoch}: smooth l1 {stats.item() / world:.5f}, last grad norm {norm:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
