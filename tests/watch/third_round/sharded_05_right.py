"""Small vision model: convolutional stages sharded one by one, then the model as a whole."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Stage(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, cout)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class SmallVision(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.patch = nn.Conv2d(1, 8, 2, stride=2)
        self.stages = nn.Sequential(Stage(8, 12), Stage(12, 16))
        self.classify = nn.Linear(16, classes)

    def forward(self, x):
        return self.classify(self.stages(self.patch(x)).mean((2, 3)))


def stripes(n=96):
    g = torch.Generator().manual_seed(31)
    kind = torch.randint(0, 4, (n,), generator=g)
    r = torch.arange(16.0)
    base = torch.stack([torch.sin(r)[:, None].expand(16, 16), torch.sin(r)[None].expand(16, 16),
                        torch.sin(r[:, None] + r[None]), torch.sin(r[:, None] - r[None])])
    return TensorDataset((base[kind] + 1.2 * torch.randn(n, 16, 16, generator=g)).unsqueeze(1), kind)


def describe(model, example):
    with torch.no_grad():
        shape = tuple(model(example).shape)
    if dist.get_rank() == 0:
        print(f"output {shape}, {sum(p.numel() for p in model.parameters())} weights")


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(6)
    model = SmallVision()
    for stage in model.stages:
        fully_shard(stage, mesh=mesh)
    fully_shard(model, mesh=mesh)
    data = stripes()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    describe(model, data[:4][0])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=18)
    sampler = DistributedSampler(data, seed=9)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        hits = torch.zeros(1)
        for images, kinds in loader:
            scores = model(images)
            loss = F.cross_entropy(scores, kinds, label_smoothing=0.05)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            hits += (scores.argmax(1) == kinds).sum()
        dist.all_reduce(hits)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} accuracy {hits.item() / len(data):.3f}")
    dist.destroy_process_group()


main()
