"""Each process reads its own shard file, as with a preprocessed corpus on disk."""
import os
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

ROOT = "ho_r13_shards"
PER_SHARD = 64


def prepare(n_shards):
    os.makedirs(ROOT, exist_ok=True)
    rng = np.random.default_rng(12)
    for s in range(n_shards):
        x = rng.normal(size=(PER_SHARD, 6)).astype("float32")
        y = (np.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]).astype("float32")
        np.savez(os.path.join(ROOT, f"shard_{s:03d}.npz"), x=x, y=y)


class ShardDataset(torch.utils.data.Dataset):
    def __init__(self, path):
        blob = np.load(path)
        self.x, self.y = torch.from_numpy(blob["x"]), torch.from_numpy(blob["y"])

    def __len__(self):
        return self.x.shape[0]

    def __getitem__(self, k):
        return self.x[k], self.y[k]


def main():
    dist.init_process_group("gloo")
    rank, ws = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        prepare(ws)
    dist.barrier()
    ds = ShardDataset(os.path.join(ROOT, f"shard_{rank:03d}.npz"))
    loader = torch.utils.data.DataLoader(ds, batch_size=8, shuffle=True)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1)))
    opt = torch.optim.NAdam(net.parameters(), lr=1e-2)
    for epoch in range(3):
        s = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.smooth_l1_loss(net(x), y)
            loss.backward()
            opt.step()
            s += float(loss)
        print(f"[{rank}] epoch {epoch} {s / len(loader):.4f}")
    dist.barrier()
    dist.destroy_process_group()


main()
