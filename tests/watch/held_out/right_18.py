# Data was preprocessed into one .npy shard per worker (all the same size).
import os, pathlib, tempfile
import numpy as np, torch, torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

NUM = 192


def prepare(rank, world, root):
    """stands for the preprocessing job: writes this rank's shard"""
    rng = np.random.RandomState(77)
    x = rng.uniform(-1, 1, (NUM, 8)).astype(np.float32)
    y = (np.sign(x[:, 0]) * x[:, 1]).astype(np.float32)
    pathlib.Path(root).mkdir(exist_ok=True)
    np.savez(os.path.join(root, f"part-{rank:05d}-of-{world:05d}.npz"), x=x[rank::world], y=y[rank::world])


class FileShard(torch.utils.data.Dataset):
    def __init__(self, fname):
        z = np.load(fname)
        self.x, self.y = torch.from_numpy(z["x"]), torch.from_numpy(z["y"])

    def __len__(self):
        return self.x.size(0)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with tempfile.TemporaryDirectory(prefix=f"shards_rank{rank}_") as root:
        prepare(rank, world, root)
        shard = FileShard(os.path.join(root, f"part-{rank:05d}-of-{world:05d}.npz"))
    # local shuffling of the local shard, no DistributedSampler
    loader = torch.utils.data.DataLoader(shard, batch_size=8, shuffle=True,
                                         generator=torch.Generator().manual_seed(rank))
    torch.manual_seed(0)
    net = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
    opt = torch.optim.NAdam(net.parameters(), lr=1e-2)
    for epoch in range(4):
        for x, y in loader:
            opt.zero_grad()
            nn.functional.mse_loss(net(x).squeeze(1), y).backward()
            opt.step()
        # every rank keeps its own log file
        with tempfile.NamedTemporaryFile("w", prefix=f"log_rank{rank}_", suffix=".txt") as f:
            f.write(f"{epoch} ok\n")
    if rank == 0:
        print("done", sum(p.sum() for p in net.parameters()).item())
    dist.destroy_process_group()
