"""Toy segmentation with a soft dice loss."""
import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Discs(Dataset):
    def __init__(self, n, size=12):
        gen = torch.Generator().manual_seed(3)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.imgs, self.masks = [], []
        for _ in range(n):
            cx, cy = torch.randint(3, size - 3, (2,), generator=gen)
            m = ((xx - cx) ** 2 + (yy - cy) ** 2 <= 6).float()
            self.masks.append(m[None])
            self.imgs.append((m + 0.4 * torch.randn(size, size, generator=gen))[None])

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        return self.imgs[i], self.masks[i]


class UNetish(nn.Module):
    def __init__(self, w=6):
        super().__init__()
        self.d1 = nn.Sequential(nn.Conv2d(1, w, 3, padding=1), nn.GroupNorm(2, w), nn.ReLU())
        self.d2 = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(w, w, 3, padding=1), nn.ReLU())
        self.up = nn.Upsample(scale_factor=2)
        self.out = nn.Conv2d(2 * w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        return self.out(torch.cat([a, self.up(self.d2(a))], 1))


def dice_loss(logits, mask, eps=1.0):
    p = logits.sigmoid().flatten(1)
    m = mask.flatten(1)
    return (1 - (2 * (p * m).sum(1) + eps) / (p.sum(1) + m.sum(1) + eps)).mean()


def main():
    dist.init_process_group("gloo")
    ds = Discs(108)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=6, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(UNetish(), static_graph=True)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for img, mask in loader:
            logits = model(img)
            loss = dice_loss(logits, mask) + nn.functional.binary_cross_entropy_with_logits(logits, mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if os.environ["RANK"] == "0":
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
