"""Image classification with numpy augmentation (crop + noise)."""
import os
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler

np.random.seed(0)
torch.manual_seed(0)


class RandomCrop:
    def __init__(self, size, pad):
        self.size, self.pad = size, pad

    def __call__(self, img):
        img = np.pad(img, self.pad)
        i, j = np.random.randint(0, 2 * self.pad + 1, 2)
        return img[i:i + self.size, j:j + self.size]


class AddNoise:
    def __init__(self, std):
        self.std = std

    def __call__(self, img):
        return img + np.random.normal(0, self.std, img.shape)


class Shapes(Dataset):
    def __init__(self, transforms, n=168):
        r = np.random.RandomState(5)
        self.y = r.randint(0, 2, n)
        self.x = np.zeros((n, 9, 9))
        for k in range(n):
            c = r.randint(2, 7)
            if self.y[k]:
                self.x[k, c, :] = 1
            else:
                self.x[k, :, c] = 1
        self.transforms = transforms

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        img = self.x[i]
        for t in self.transforms:
            img = t(img)
        return torch.from_numpy(img).float().unsqueeze(0), int(self.y[i])


def main():
    dist.init_process_group("gloo")
    ds = Shapes([RandomCrop(9, 2), AddNoise(0.2)])
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=14, sampler=sampler, num_workers=0)
    model = DDP(nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 2)))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
        if int(os.environ["RANK"]) == 0:
            print("epoch", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
