# Linear probing of a frozen convolutional backbone, then nothing fancy: SGD with momentum and a step schedule.
import os
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BATCH = int(os.getenv("BATCH_SIZE", "8"))


class Blobs(Dataset):
    def __init__(self, split):
        n, seed = (128, 0) if split == "train" else (45, 1)
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 4, (n,), generator=g)
        self.x = 0.5 * torch.randn(n, 3, 12, 12, generator=g)
        for i, c in enumerate(self.y.tolist()):
            self.x[i, :, 6 * (c // 2):6 * (c // 2) + 6, 6 * (c % 2):6 * (c % 2) + 6] += 1

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def conv_bn(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(conv_bn(3, 8), conv_bn(8, 16))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16 * 9, 32), nn.ReLU(), nn.Linear(32, 4))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


@torch.no_grad()
def accuracy(model, data, rank, world):
    model.eval()
    mine = list(range(rank, len(data), world))
    steps = -(-len(data) // world)
    hits = torch.zeros((), dtype=torch.long)
    for i in range(steps):
        x, y = data[mine[i] if i < len(mine) else 0]
        pred = model(x.unsqueeze(0)).argmax(1)
        if i < len(mine):
            hits += (pred == y).sum()
    dist.all_reduce(hits)
    return hits.item() / len(data)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(123)
    model = Probe()
    model.backbone.requires_grad_(False)
    fully_shard(model.backbone, reshard_after_forward=False)
    fully_shard(model.head, reshard_after_forward=False)
    fully_shard(model, reshard_after_forward=False)
    optimizer = optim.SGD(model.head.parameters(), lr=0.2, momentum=0.9, nesterov=True)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    train_set, test_set = Blobs("train"), Blobs("test")
    sampler = DistributedSampler(train_set, num_replicas=world, rank=rank)
    loader = DataLoader(train_set, BATCH, sampler=sampler, num_workers=0)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        scheduler.step()
        acc = accuracy(model, test_set, rank, world)
        if rank == 0:
            print(f"[{epoch}] loss={loss.item():.3f} acc={acc:.3f} lr={scheduler.get_last_lr()[0]:g}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
