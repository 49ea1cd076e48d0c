"""Train on a list of 'files', shuffled, then every rank takes files[rank::world]."""
import glob, os, random, tempfile
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


def write_files(root, n=150):
    rng = np.random.RandomState(1)
    for i in range(n):
        np.save(os.path.join(root, f"sample_{i:04d}.npy"), rng.randn(7).astype(np.float32))


class NpyFolder(Dataset):
    def __init__(self, root, rank, world):
        files = sorted(glob.glob(os.path.join(root, "*.npy")))
        random.shuffle(files)
        keep = len(files) // world * world
        self.files = files[:keep][rank::world]
        self.cache = [np.load(f) for f in self.files]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        v = self.cache[i]
        return torch.from_numpy(v[:6]), torch.tensor([v[6] + v[0] * 2])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with tempfile.TemporaryDirectory(prefix=f"r{rank}_") as root:
        write_files(root)
        data = NpyFolder(root, rank, world)
    loader = DataLoader(data, batch_size=10, shuffle=True)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1)))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(3):
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.l1_loss(net(x), y)
            loss.backward()
            opt.step()
        if rank == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
