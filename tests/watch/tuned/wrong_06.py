import argparse
import os
import random
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


def seed_everything(seed=1234):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class Augmented(Dataset):
    def __init__(self, n):
        rs = np.random.RandomState(99)
        self.y = rs.randint(0, 2, n)
        self.x = rs.randn(n, 1, 8, 8).astype("float32") + self.y[:, None, None, None] * 0.5

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        img = self.x[i]
        if random.random() < 0.5:
            img = img[:, :, ::-1]
        dx, dy = np.random.randint(-1, 2, size=2)
        img = np.roll(img, (dx, dy), axis=(1, 2))
        img = img + 0.2 * np.random.randn(*img.shape)
        return torch.tensor(img.copy(), dtype=torch.float32), int(self.y[i])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--bs", type=int, default=10)
    args = p.parse_args()
    seed_everything()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl")
    ds = Augmented(120)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=args.bs, sampler=sampler, num_workers=0)
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 2)).cuda(local_rank)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.cuda(local_rank), y.cuda(local_rank)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if local_rank == 0:
            print("epoch", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
