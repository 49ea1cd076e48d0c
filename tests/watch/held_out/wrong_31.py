# Metric learning with a center loss; the centers are parameters of the loss module.
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Faces(Dataset):
    def __init__(self, n=180, classes=6):
        g = torch.Generator().manual_seed(18)
        c = torch.randn(classes, 15, generator=g)
        self.y = torch.arange(n) % classes
        self.x = c[self.y] + 0.6 * torch.randn(n, 15, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class CosineHead(nn.Module):
    """additive margin softmax"""

    def __init__(self, classes, dim, s=8.0, m=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))
        self.s, self.m = s, m

    def forward(self, emb, y):
        cos = F.normalize(emb) @ F.normalize(self.weight).t()
        cos = cos - self.m * F.one_hot(y, cos.size(1))
        return F.cross_entropy(self.s * cos, y)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    embed = DDP(nn.Sequential(nn.Linear(15, 32), nn.ReLU(), nn.Linear(32, 8)))
    criterion = CosineHead(6, 8)
    opt = torch.optim.SGD([{"params": embed.parameters()},
                           {"params": criterion.parameters(), "lr": 0.1}], lr=0.02, momentum=0.9)
    ds = Faces()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=15, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = criterion(embed(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if os.environ["RANK"] == "0":
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
